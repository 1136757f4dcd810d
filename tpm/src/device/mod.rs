//! The machine's half.
