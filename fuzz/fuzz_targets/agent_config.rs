//! `agent.toml`, which travels on a disk that anybody could have written.
#![no_main]

use ironwright_agent::node::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = Config::parse(text);
});
