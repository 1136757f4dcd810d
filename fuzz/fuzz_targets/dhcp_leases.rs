//! The file of DHCP leases, after whatever happened to the disk.
#![no_main]

use std::net::Ipv4Addr;

use ironwright_pxe::dhcp::{Leases, Pool};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let pool = Pool::new(Ipv4Addr::new(10, 0, 0, 100), Ipv4Addr::new(10, 0, 0, 199)).expect("a pool");
    let (leases, _) = Leases::read_text(pool, text);
    assert_eq!(Leases::read_text(pool, &leases.to_text()), (leases, 0));
});
