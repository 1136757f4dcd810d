//! The ironwright program.
fn main() {}
