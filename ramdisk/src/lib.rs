//! PID 1 of the initramfs: early boot, network, join, and the orders that provision the machine it runs on.

pub mod boot;
pub mod cmdline;
pub mod console;
pub mod exec;
pub mod init;
pub mod join;
pub mod machine;
pub mod net;
pub mod node;
pub mod provision;
mod session;
pub mod stage;
