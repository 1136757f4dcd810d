//! The ramdisk's parts against real sockets and files.

mod provision;
mod server;
mod source;
