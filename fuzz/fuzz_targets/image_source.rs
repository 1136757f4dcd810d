//! The URL of an image, and the heads of the answers that its fetcher gets.
#![no_main]

use std::time::Instant;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use ironwright_fuzz::input::Input;
use ironwright_ramdisk::exec::source::{
    resume::{Patience, Resume},
    url::HttpUrl,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    if let Ok(url) = HttpUrl::parse(input.text()) {
        assert_eq!(HttpUrl::parse(&url.to_string()), Ok(url.clone()));
        assert!(!url.address().0.is_empty() && url.path_and_query().starts_with('/'));
    }
    let now = Instant::now();
    let total = u64::from(u32::from_be_bytes(input.array()));
    let mut transfer = Resume::new(total, Patience::default(), now);
    while !input.is_empty() {
        let Ok(status) = StatusCode::from_u16(u16::from_be_bytes(input.array())) else { return };
        let mut headers = HeaderMap::new();
        for name in [header::CONTENT_LENGTH, header::CONTENT_RANGE] {
            if let Ok(value) = HeaderValue::from_bytes(input.part()) {
                headers.insert(name, value);
            }
        }
        if let Ok(skip) = transfer.check_head(status, &headers) {
            assert!(skip == 0 || skip == transfer.offset());
            let count = usize::from(u16::from_be_bytes(input.array()));
            assert!(transfer.bytes(count, now) <= count && transfer.offset() <= total);
        } else if transfer.broken("it broke".into(), now).is_err() {
            return;
        }
    }
});
