//! Cuts one input into parts, so that a target can take several.

use ironwright_proto::Message;

/// Input that is not used yet. Where nothing is left, parts are empty and numbers are 0.
#[derive(Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// All of an input.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// The next bytes, filled up with zeroes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_at(N.min(self.0.len()));
        self.0 = rest;
        let mut out = [0; N];
        out[..taken.len()].copy_from_slice(taken);
        out
    }

    /// A part that is preceded by its length in two bytes, big-endian.
    pub fn part(&mut self) -> &'a [u8] {
        let len = usize::from(u16::from_be_bytes(self.array()));
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A part as text; empty where it is none.
    pub fn text(&mut self) -> &'a str {
        std::str::from_utf8(self.part()).unwrap_or("")
    }

    /// A part as a message; an empty one where it is none.
    pub fn message<M: Message + Default>(&mut self) -> M {
        M::decode(self.part()).unwrap_or_default()
    }

    /// All that is left.
    #[must_use]
    pub fn rest(self) -> &'a [u8] {
        self.0
    }
}
