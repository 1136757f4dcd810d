//! An image as it comes from the network: its format, its promised size, its decoded bytes.
#![no_main]

use std::io::Read;

use ironwright_images::{
    decode::decoder,
    probe::{PROBE_LEN, decoded_size, probe},
};
use libfuzzer_sys::fuzz_target;

/// Decoded bytes looked at. A deploy stops at the disk's end in the same way.
const LIMIT: u64 = 4 << 20;

fuzz_target!(|bytes: &[u8]| {
    let first = &bytes[..bytes.len().min(PROBE_LEN)];
    let promised = decoded_size(first);
    let Ok(format) = probe(first) else { return };
    let Ok(decoder) = decoder(bytes, format) else { return };
    let mut sink = std::io::sink();
    if let Ok(decoded) = std::io::copy(&mut decoder.take(LIMIT), &mut sink)
        && decoded < LIMIT
    {
        assert!(promised.is_none_or(|promised| promised <= decoded), "{promised:?} of {decoded}");
    }
});
