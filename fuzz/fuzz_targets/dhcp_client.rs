//! What the ramdisk's DHCP client hears, between its own requests and the passing of time.
#![no_main]

use std::time::{Duration, Instant};

use ironwright_fuzz::input::Input;
use ironwright_proto::ids::Mac;
use ironwright_ramdisk::net::dhcp::{
    client::{Client, Effect, Input as Happens},
    message::parse,
};
use libfuzzer_sys::fuzz_target;

const MAC: Mac = Mac([0x52, 0x54, 0, 0, 0, 1]);
const XID: usize = 4;
const CHADDR: usize = 28;

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let mut now = Instant::now();
    let mut client = Client::new(MAC, 7, now);
    let mut xid = [0; 4];
    while !input.is_empty() {
        let flags = input.byte();
        let effects = if flags & 1 == 0 {
            now = now.max(client.wake()) + Duration::from_secs(u64::from(input.byte()));
            client.step(Happens::Time, now)
        } else {
            let mut datagram = input.part().to_vec();
            // An answer to the newest request, whatever else it says.
            if flags & 2 == 0 && datagram.len() > CHADDR + 6 {
                datagram[XID..XID + 4].copy_from_slice(&xid);
                datagram[CHADDR..CHADDR + 6].copy_from_slice(&MAC.0);
            }
            let _ = parse(&datagram, u32::from_be_bytes(xid), MAC);
            client.step(Happens::Datagram(&datagram), now)
        };
        for effect in effects {
            match effect {
                Effect::Send { bytes, .. } => {
                    assert!((300..=1472).contains(&bytes.len()));
                    xid.copy_from_slice(&bytes[XID..XID + 4]);
                }
                Effect::Bound(lease) => {
                    assert!((1..=32).contains(&lease.prefix) && lease.name_servers.len() <= 3);
                    assert!(lease.renew_after <= lease.rebind_after && lease.rebind_after <= lease.holds);
                    assert!(!lease.address.is_unspecified());
                }
                Effect::Lost(_) => {}
            }
        }
        assert!(client.wake() >= now || flags & 1 == 1, "a client that never sleeps");
    }
});
