//! A whole join against a software TPM: what the device makes, the checks accept, and nothing else.

mod swtpm;

#[test]
fn smoke() {
    let maker = swtpm::Manufacturer::new();
    let tpm = maker.make();
    let mut device = ironwright_tpm::device::Tpm::open(&tpm.tcti()).unwrap();
    let material = device.begin_join().unwrap();
    let roots = ironwright_tpm::verify::EkRoots::from_pem(&(maker.roots() + &maker.issuer())).unwrap();
    let begin = material.into_begin([1; 32], Default::default());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    let checked = ironwright_tpm::verify::check_begin(&begin, &roots, now);
    println!("{checked:?}");
}
