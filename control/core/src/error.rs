//! Errors of operations, each with the code, HTTP status and field that the API gives for it.

use ironwright_proto::{
    api::{ApiError, ApiErrorBody, ImageState},
    ids::{Mac, Name},
};

use crate::store::StoreError;

/// Why an operation of the API was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No machine of that id.
    #[error("there is no machine `{0}`; enroll it with `ironwright machines add`")]
    UnknownMachine(String),
    /// No image of that name.
    #[error("there is no image `{0}`; register it with `ironwright images add`")]
    UnknownImage(String),
    /// No site of that name.
    #[error("there is no site `{0}`; create it with `ironwright sites add`")]
    UnknownSite(String),
    /// No run of that id.
    #[error("there is no run `{0}`")]
    UnknownRun(String),
    /// No command of that id.
    #[error("there is no command `{0}`")]
    UnknownCommand(String),
    /// No node of that id.
    #[error("there is no node `{0}`")]
    UnknownNode(String),
    /// The id names another machine already.
    #[error("machine `{0}` is enrolled already")]
    MachineExists(Name),
    /// The MAC belongs to another machine.
    #[error("MAC address {mac} belongs to machine `{machine}` already")]
    MacTaken {
        /// The address.
        mac: Mac,
        /// Whose it is.
        machine: String,
    },
    /// The image is being fetched or is ready.
    #[error("image `{0}` exists already; an image's bytes do not change, so give new bytes a new name")]
    ImageExists(Name),
    /// Only a ready image can be deployed.
    #[error("image `{image}` is {state:?}, not Ready; see `ironwright images show {image}`")]
    ImageNotReady {
        /// Its name.
        image: Name,
        /// Its state.
        state: ImageState,
    },
    /// An upload or a fetch ended that was not under way.
    #[error("image `{0}` is not being fetched")]
    ImageNotFetching(Name),
    /// It can be removed once it is ready or has failed.
    #[error("image `{0}` is still being fetched; wait until it is ready or has failed")]
    ImageFetching(Name),
    /// A run that has not ended puts it on a disk.
    #[error("run `{run}` deploys image `{image}`; wait for it or cancel it")]
    ImageInUse {
        /// Its name.
        image: Name,
        /// The run.
        run: String,
    },
    /// Every disk that the hint allows is too small.
    #[error(
        "image `{image}` needs {image_bytes} bytes; the largest disk of machine `{machine}` that the hint allows has \
         {disk_bytes}"
    )]
    ImageTooLarge {
        /// The image.
        image: Name,
        /// Its size after decoding.
        image_bytes: u64,
        /// The machine.
        machine: Name,
        /// The largest disk that the hint allows.
        disk_bytes: u64,
    },
    /// One run at a time for each machine.
    #[error("machine `{machine}` is busy with run `{run}`; wait for it or cancel it")]
    MachineBusy {
        /// The machine.
        machine: Name,
        /// What it is busy with.
        run: String,
    },
    /// Its operating system would be erased.
    #[error("machine `{machine}` runs as node `{node}`; give --replace (`replace` in the API) to erase it")]
    MachineActive {
        /// The machine.
        machine: Name,
        /// What it runs as.
        node: String,
    },
    /// The run has ended.
    #[error("run `{0}` has ended already")]
    RunEnded(String),
    /// A field that no operation can work with.
    #[error("field `{field}`: {why}")]
    BadRequest {
        /// The field.
        field: &'static str,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record that this version cannot read.
    #[error("the record `{key}` in the store cannot be read")]
    Corrupt {
        /// Its key.
        key: String,
        /// What the decoder says.
        #[source]
        source: serde_json::Error,
    },
    /// A value outside of what this code makes; a bug.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    /// A refusal of one field.
    pub fn bad(field: &'static str, why: impl Into<String>) -> Self {
        Self::BadRequest { field, why: why.into() }
    }

    /// The stable word of the API.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::UnknownMachine(_) => "unknown_machine",
            Self::UnknownImage(_) => "unknown_image",
            Self::UnknownSite(_) => "unknown_site",
            Self::UnknownRun(_) => "unknown_run",
            Self::UnknownNode(_) => "unknown_node",
            Self::UnknownCommand(_) => "unknown_command",
            Self::MachineExists(_) => "machine_exists",
            Self::MacTaken { .. } => "mac_taken",
            Self::ImageExists(_) => "image_exists",
            Self::ImageNotReady { .. } => "image_not_ready",
            Self::ImageNotFetching(_) => "image_not_fetching",
            Self::ImageFetching(_) => "image_fetching",
            Self::ImageInUse { .. } => "image_in_use",
            Self::ImageTooLarge { .. } => "image_too_large",
            Self::MachineBusy { .. } => "machine_busy",
            Self::MachineActive { .. } => "machine_active",
            Self::RunEnded(_) => "run_ended",
            Self::BadRequest { .. } => "bad_request",
            Self::Store(_) | Self::Corrupt { .. } | Self::Internal(_) => "internal",
        }
    }

    /// The field of the request that is at fault.
    pub const fn field(&self) -> Option<&'static str> {
        match self {
            Self::UnknownMachine(_) | Self::MachineBusy { .. } => Some("machine"),
            Self::UnknownImage(_)
            | Self::ImageNotReady { .. }
            | Self::ImageFetching(_)
            | Self::ImageInUse { .. }
            | Self::ImageTooLarge { .. } => Some("image"),
            Self::UnknownSite(_) => Some("site"),
            Self::MachineActive { .. } => Some("replace"),
            Self::MachineExists(_) => Some("id"),
            Self::MacTaken { .. } => Some("mac"),
            Self::ImageExists(_) => Some("name"),
            Self::BadRequest { field, .. } => Some(field),
            _ => None,
        }
    }

    /// The HTTP status (RFC 9110).
    pub const fn status(&self) -> u16 {
        match self {
            Self::UnknownMachine(_)
            | Self::UnknownImage(_)
            | Self::UnknownSite(_)
            | Self::UnknownRun(_)
            | Self::UnknownCommand(_)
            | Self::UnknownNode(_) => 404,
            Self::MachineExists(_)
            | Self::MacTaken { .. }
            | Self::ImageExists(_)
            | Self::ImageNotReady { .. }
            | Self::ImageNotFetching(_)
            | Self::ImageFetching(_)
            | Self::ImageInUse { .. }
            | Self::MachineBusy { .. }
            | Self::MachineActive { .. }
            | Self::RunEnded(_) => 409,
            Self::ImageTooLarge { .. } | Self::BadRequest { .. } => 422,
            Self::Store(_) | Self::Corrupt { .. } | Self::Internal(_) => 500,
        }
    }

    /// The body of the API's answer. What went wrong inside stays in control's own log.
    pub fn to_api(&self) -> ApiError {
        let message = match self.status() {
            500 => "control could not do this because of an error of its own; see its log".to_owned(),
            _ => self.to_string(),
        };
        ApiError {
            error: ApiErrorBody {
                code: self.code().to_owned(),
                message,
                field: self.field().map(str::to_owned),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_name_the_code_and_the_field_and_hide_the_inside() {
        let body = Error::UnknownImage("debian-12".into()).to_api().error;
        assert_eq!((body.code.as_str(), body.field.as_deref()), ("unknown_image", Some("image")));
        assert!(body.message.contains("`debian-12`"));
        let inside = Error::Store(StoreError::backend("committing a transaction", "disk sda1 is gone"));
        assert_eq!(inside.status(), 500);
        assert!(!inside.to_api().error.message.contains("sda1"));
    }
}
