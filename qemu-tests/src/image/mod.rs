//! Disk images for tests and the demo. Made from files alone: no root, no loop devices, no mounts.

mod debian;
mod disk;
mod small;

pub use debian::{DebianImage, debian};
pub use disk::{ESP_BYTES, ESP_OFFSET};
pub use small::{SmallImage, small, small_with_ballast};
