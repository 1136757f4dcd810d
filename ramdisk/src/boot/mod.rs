//! What a kernel leaves to its first process: file systems, drivers, children, and the way out.

pub mod devices;
pub mod hardware;
pub mod modules;
pub mod mount;
pub mod power;
pub mod signals;
