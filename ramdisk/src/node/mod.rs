//! The role `node`: this program as the operating system of a deployed disk.

pub mod seed;
