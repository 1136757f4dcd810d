//! Independent streams of random numbers: one for each thing that draws.
//!
//! A stream depends on the seed, its name and its number alone. So another machine, or a fault less, never shifts what
//! the others draw, which is what makes a schedule of faults shrinkable.

use rand::{SeedableRng, rngs::StdRng};
use sha2::{Digest, Sha256};

/// All streams of one seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streams(pub(crate) u64);

impl Streams {
    /// The stream of this name and number, from its start.
    pub(crate) fn stream(self, name: &str, number: u64) -> StdRng {
        let mut hasher = Sha256::new();
        hasher.update(self.0.to_be_bytes());
        hasher.update(number.to_be_bytes());
        hasher.update(name.as_bytes());
        StdRng::from_seed(hasher.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use rand::RngCore;

    use super::*;

    #[test]
    fn streams_differ_by_seed_name_and_number_and_repeat() {
        let first = |seed, name, number| Streams(seed).stream(name, number).next_u64();
        assert_eq!(first(1, "link", 0), first(1, "link", 0));
        let all = [first(1, "link", 0), first(2, "link", 0), first(1, "disk", 0), first(1, "link", 1)];
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), 4);
    }
}
