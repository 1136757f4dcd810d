//! The rig: emulated machines with TPMs on a network of their own, and a whole Ironwright beside them.
//!
//! ```text
//!  Namespace ─ br0 10.77.0.1/24 ─┬─ tap0 ─ Machine (QEMU) ─ Tpm (swtpm)
//!      │                         └─ tap1 ─ …
//!      └─ Cluster: `ironwright control serve`, `ironwright site run`, and the CLI
//! ```
//!
//! The rig drives only built programs, through their command lines, files and wires; it uses no other
//! crate of the workspace. It needs the Debian packages of `cargo xtask setup` and either root or
//! unprivileged user namespaces. Nothing it makes has a global name, so rigs run side by side, and
//! everything ends with the thread that made it.

pub mod artifacts;
pub mod cache;
pub mod cluster;
pub mod disk;
pub mod image;
pub mod machine;
pub mod namespace;
pub mod process;
pub mod tpm;
pub mod wait;
