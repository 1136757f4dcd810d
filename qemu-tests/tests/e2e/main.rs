//! End to end: a machine with a blank disk is switched on, and what happens then is looked at from both
//! sides: control's state, and the machine's disk and console.
//!
//! Tests whose name begins with `quick_` are run by `cargo xtask test`, all by `cargo xtask e2e`.

mod deploys;
mod faults;
mod identity;
mod rig;

use std::time::Duration;

/// From power on to an open session of the operating system, with emulated CPUs and little of them.
const DEPLOY_LIMIT: Duration = Duration::from_secs(600);
/// From power on to imaging.
const IMAGING_LIMIT: Duration = Duration::from_secs(300);
/// For what takes moments.
const SHORT_LIMIT: Duration = Duration::from_secs(60);

/// Megabits per second at which [`BALLAST_MIB`] takes long enough to be interrupted.
const SLOW_NETWORK: u32 = 100;
/// How much an image that is to be interrupted weighs: about 20 s at [`SLOW_NETWORK`].
const BALLAST_MIB: u32 = 256;
