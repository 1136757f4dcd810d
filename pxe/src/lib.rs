//! Network boot: DHCP and proxyDHCP, TFTP, boot HTTP and iPXE scripts.
//!
//! Decisions ([`dhcp::decide`], [`tftp::transfer`], [`tftp::slots`], [`http::range`], [`ipxe`]) are functions
//! over bytes, a boot table snapshot and the time; the sockets around them ([`dhcp::Server`], [`tftp::Server`],
//! [`http::Server`]) are thin. The firmware's way through it:
//!
//! ```text
//!  DHCPDISCOVER ──▶ dhcp: boot file by architecture ──▶ tftp or http: an iPXE binary
//!                                                              │
//!  DHCPDISCOVER from iPXE ──▶ dhcp: URL of a script ◀──────────┘
//!                                 │
//!                                 ▼
//!  GET /boot/<mac>/ipxe ──▶ http: script ──▶ GET /blobs/sha256/<hex>: kernel and ramdisk
//! ```

pub mod dhcp;
pub mod files;
pub mod http;
pub mod ipxe;
pub mod now;
mod table;
pub mod tftp;

pub use now::Now;
pub use table::Table;
