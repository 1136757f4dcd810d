//! What several fuzz targets share: cutting input, keys that everybody knows, and a small control plane.

pub mod control;
pub mod der;
pub mod input;
pub mod soft_tpm;
