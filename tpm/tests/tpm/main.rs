//! Joins against software TPMs: what the device makes, the checks accept, and nothing else.

mod control;
mod join;
mod node_key;
mod profiles;
mod slots;
mod swtpm;
