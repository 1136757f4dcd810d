//! Control as others see it: real sockets, real TLS, real files.

mod auth;
mod client;
mod durability;
mod gateway;
mod images;
mod init;
mod join;
mod resources;
mod rig;
mod web;
