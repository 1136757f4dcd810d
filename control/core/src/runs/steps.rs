//! The steps of a deploy run: their order, who carries them out and how long they may take.

use ironwright_proto::kinds::{self, Role};

const MINUTE_MS: i64 = 60_000;

/// A step of a deploy run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    BootPrepare,
    RamdiskJoin,
    InventoryCollect,
    DiskErase,
    ImageDeploy,
    BootFinish,
    BootLocal,
    NodeReboot,
    NodeJoin,
}

/// What carries a step out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// A command of this kind, run by the site agent or the ramdisk.
    Command(&'static str, Role),
    /// The machine, by opening a session in this role.
    Hello(Role),
}

impl Step {
    pub(crate) const ALL: [Self; 9] = [
        Self::BootPrepare,
        Self::RamdiskJoin,
        Self::InventoryCollect,
        Self::DiskErase,
        Self::ImageDeploy,
        Self::BootFinish,
        Self::BootLocal,
        Self::NodeReboot,
        Self::NodeJoin,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::RamdiskJoin => "ramdisk.join",
            Self::NodeJoin => "node.join",
            Self::BootPrepare => kinds::BOOT_PREPARE,
            Self::InventoryCollect => kinds::INVENTORY_COLLECT,
            Self::DiskErase => kinds::DISK_ERASE,
            Self::ImageDeploy => kinds::IMAGE_DEPLOY,
            Self::BootFinish => kinds::BOOT_FINISH,
            Self::BootLocal => kinds::BOOT_LOCAL,
            Self::NodeReboot => kinds::NODE_REBOOT,
        }
    }

    pub(crate) const fn by(self) -> By {
        match self {
            Self::BootPrepare | Self::BootLocal => By::Command(self.name(), Role::Site),
            Self::RamdiskJoin => By::Hello(Role::Ramdisk),
            Self::NodeJoin => By::Hello(Role::Node),
            Self::InventoryCollect
            | Self::DiskErase
            | Self::ImageDeploy
            | Self::BootFinish
            | Self::NodeReboot => By::Command(self.name(), Role::Ramdisk),
        }
    }

    /// How long the step may take, from its beginning, retries included.
    pub(crate) const fn limit_ms(self) -> i64 {
        match self {
            Self::RamdiskJoin => 60 * MINUTE_MS,
            Self::ImageDeploy => 240 * MINUTE_MS,
            // The reboot too: where the agent's last word is lost as the machine goes down, only the operating
            // system's first one tells that it happened.
            Self::BootPrepare | Self::NodeReboot | Self::NodeJoin => 30 * MINUTE_MS,
            Self::InventoryCollect | Self::DiskErase | Self::BootFinish | Self::BootLocal => 5 * MINUTE_MS,
        }
    }

    /// Position in [`Self::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_step_is_of_a_kind_that_its_role_runs() {
        for (index, step) in Step::ALL.into_iter().enumerate() {
            assert_eq!(step.index(), index);
            if let By::Command(kind, role) = step.by() {
                assert!(kinds::find(kind).unwrap().roles.contains(&role), "{kind}");
            }
        }
    }
}
