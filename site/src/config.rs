//! The site's configuration: TOML as a person writes it, and the checked form.

mod checked;
mod raw;

pub use checked::{Config, ConfigError, Dhcp};

/// A commented example, which is also a valid configuration.
pub(crate) const EXAMPLE: &str = include_str!("config/example.toml");
