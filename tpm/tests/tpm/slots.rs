//! A TPM without a resource manager has three slots for objects and three for sessions.

use ironwright_tpm::device::{DeviceError, Tpm};

use crate::{
    control::{answer, challenge, finish},
    swtpm::Manufacturer,
};

/// `TPM2_StartAuthSession`: neither salted nor bound, 16 bytes of nonce, policy, no symmetric algorithm, SHA-256.
const START_POLICY_SESSION: [u8; 43] = [
    0x80, 0x01, 0, 0, 0, 43, 0, 0, 0x01, 0x76, 0x40, 0, 0, 0x07, 0x40, 0, 0, 0x07, 0, 16, 1, 2, 3, 4, 5, 6,
    7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0, 0, 0x01, 0, 0x10, 0, 0x0b,
];

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
        swtpm.send(&START_POLICY_SESSION);
    }
    for slots in ["handles-transient", "handles-loaded-session"] {
        assert_eq!(swtpm.tool(&["getcap", slots]).lines().count(), 3, "{slots}");
    }
    let mut tpm = Tpm::open(&swtpm.tcti()).unwrap();
    let material = tpm.begin_join().unwrap();
    let pending = challenge(&material, &maker.roots());
    let finished = answer(&mut tpm, &material, &pending).unwrap();
    finish(&pending, &finished).unwrap();
}
