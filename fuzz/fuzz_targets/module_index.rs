//! `modules.dep`, `modules.alias` and a device's modalias.
#![no_main]

use std::path::Path;

use ironwright_fuzz::input::Input;
use ironwright_images::modules::{Index, matches};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let (dep, alias) = (input.text(), input.text());
    let wanted = String::from_utf8_lossy(input.rest());
    let index = Index::parse(Path::new(""), dep, alias);
    let files = index.resolve(&wanted);
    // As spelled in `modules.dep`: `a//b` is another file there than `a/b`.
    let distinct: std::collections::HashSet<_> = files.iter().map(|file| file.as_os_str()).collect();
    assert_eq!(distinct.len(), files.len(), "a file twice");
    let _ = matches(alias, &wanted);
});
