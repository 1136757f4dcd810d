//! A whole site on loopback: real sockets and files, with the test in control's place.

mod boot;
mod fetch;
mod rig;
