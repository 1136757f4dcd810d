//! A command as an executor sees it.

use ironwright_proto::{Message, wire::CommandError};

/// An accepted command, ready to run.
#[derive(Clone, PartialEq, Eq)]
pub struct Order {
    /// The command's id.
    pub id: String,
    /// Its kind, one of `ironwright_proto::kinds`.
    pub kind: String,
    /// The kind's argument message, encoded.
    pub args: Vec<u8>,
}

impl Order {
    /// Decodes the arguments; what is not the kind's message fails with `malformed_args`.
    pub fn decode_args<M: Message + Default>(&self) -> Result<M, CommandError> {
        M::decode(self.args.as_slice()).map_err(|err| {
            fail("malformed_args", format!("the arguments of command {} ({}): {err}", self.id, self.kind))
        })
    }
}

/// Arguments may carry tokens and user data, so they are not shown.
impl std::fmt::Debug for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Order({} {}, {} argument bytes)", self.id, self.kind, self.args.len())
    }
}

/// A named failure: a stable snake_case code and a sentence for people.
pub fn fail(code: &str, message: impl Into<String>) -> CommandError {
    CommandError { code: code.to_owned(), message: message.into() }
}

#[cfg(test)]
mod tests {
    use ironwright_proto::wire::BootFinishArgs;

    use super::*;

    #[test]
    fn arguments_are_decoded_or_refused_by_name() {
        let args = BootFinishArgs { path: "/dev/vda".into() }.encode_to_vec();
        let order = Order { id: "c1".into(), kind: "boot.finish".into(), args };
        assert_eq!(order.decode_args::<BootFinishArgs>().unwrap().path, "/dev/vda");

        let order = Order { args: vec![0xff, 0xff], ..order };
        let err = order.decode_args::<BootFinishArgs>().unwrap_err();
        assert_eq!(err.code, "malformed_args");
        assert!(err.message.contains("c1"), "{}", err.message);
    }

    #[test]
    fn arguments_stay_out_of_debug_output() {
        let order = Order { id: "c1".into(), kind: "boot.prepare".into(), args: b"token-s3cret".to_vec() };
        assert_eq!(format!("{order:?}"), "Order(c1 boot.prepare, 12 argument bytes)");
    }
}
