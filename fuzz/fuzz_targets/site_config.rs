//! `site.toml`.
#![no_main]

use ironwright_site::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = Config::from_toml(text);
});
