//! Tests of network boot as clients see it: wire bytes, and real sockets on loopback.

mod dhcp;
mod dhcp_wire;
mod http;
mod netns;
mod tftp;
