//! A TPM without a resource manager has three slots for objects and three for sessions.

use ironwright_tpm::device::{DeviceError, Tpm};

use crate::{
    control::{answer, challenge, finish},
    swtpm::Manufacturer,
};

#[test]
fn t21_failures_leave_nothing_behind() {
    let maker = Manufacturer::new();
    let swtpm = maker.make();
    let mut tpm = Tpm::open(&swtpm.tcti()).unwrap();
    // More failures between load and flush than there are slots.
    for _ in 0..4 {
        let material = tpm.begin_join().unwrap();
        let mut pending = challenge(&material, &maker.roots());
        pending.challenge.credential_blob[10] ^= 1;
        assert!(matches!(answer(&mut tpm, &material, &pending), Err(DeviceError::ForeignCredential)));
    }
    drop(tpm);
    for slots in ["handles-transient", "handles-loaded-session"] {
        assert_eq!(swtpm.tool(&["getcap", slots]), "", "{slots}");
    }
}

#[test]
fn t21_slots_filled_by_dead_programs_are_freed() {
    let maker = Manufacturer::new();
    let swtpm = maker.make();
    for number in 0..3 {
        swtpm.tool(&["createprimary", "-Q", "-c", &format!("primary{number}")]);
        swtpm.tool(&["startauthsession", "--policy-session", "-S", &format!("session{number}")]);
    }
    assert_eq!(swtpm.tool(&["getcap", "handles-transient"]).lines().count(), 3);
    let mut tpm = Tpm::open(&swtpm.tcti()).unwrap();
    let material = tpm.begin_join().unwrap();
    let pending = challenge(&material, &maker.roots());
    let finished = answer(&mut tpm, &material, &pending).unwrap();
    finish(&pending, &finished).unwrap();
}
