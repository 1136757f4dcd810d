//! Packets at the ports of the DHCP server and the boot server, one after the other, over one set of leases.
#![no_main]

use std::{
    net::{Ipv4Addr, SocketAddrV4},
    time::{Duration, Instant},
};

use ironwright_fuzz::input::Input;
use ironwright_proto::ids::Mac;
use ironwright_pxe::{
    Now, Table,
    dhcp::{BootFiles, Config, Leases, MAX_PACKET, MIN_PAYLOAD, Mode, Pool, Port, Request, Subnet, decide},
};
use libfuzzer_sys::fuzz_target;

const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

fn config(proxy: bool) -> Config {
    let pool = Pool::new(Ipv4Addr::new(10, 0, 0, 100), Ipv4Addr::new(10, 0, 0, 103)).expect("a pool");
    let router = Some(Ipv4Addr::new(10, 0, 0, 1));
    let subnet = Subnet { pool, prefix: 24, router, dns: vec![SERVER], lease_s: 3600 };
    Config {
        mode: if proxy { Mode::Proxy } else { Mode::Server(subnet) },
        boot: BootFiles {
            server: SERVER,
            http_port: 8080,
            bios: Some("undionly.kpxe".into()),
            x64_uefi: Some("snponly.efi".into()),
            arm64_uefi: None,
        },
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let config = config(input.byte() & 1 == 1);
    let mono = Instant::now();
    let mut now = Now { unix_ms: 1_764_547_200_000, mono };
    let mut table = Table { lease_until: Some(mono + Duration::from_secs(3600)), ..Table::default() };
    table.ramdisk.insert(Mac([0x52, 0x54, 0, 0, 0, 1]), i64::MAX);
    table.local.insert(Mac([0x52, 0x54, 0, 0, 0, 2]));
    let mut leases = Leases::default();
    while !input.is_empty() {
        let port = if input.byte() & 1 == 1 { Port::BootServer } else { Port::Dhcp };
        let passed_ms = u32::from_be_bytes(input.array());
        now.unix_ms += i64::from(passed_ms);
        if passed_ms & 1 == 0 {
            now.mono += Duration::from_millis(passed_ms.into()); // else the clock was set
        }
        let packet = input.part();
        let from = SocketAddrV4::new(Ipv4Addr::from(input.array::<4>()), 68);
        let Ok(decision) = decide(&config, &table, &mut leases, packet, (port, from), now) else { continue };
        let request = Request::parse(packet).expect("it was answered");
        if let Some(reply) = decision.reply {
            assert!((MIN_PAYLOAD..=MAX_PACKET).contains(&reply.bytes.len()), "{}", reply.bytes.len());
            assert_eq!(reply.bytes[4..8], request.xid, "the answer to this request");
            assert_eq!(reply.bytes[28..34], request.mac.0, "the answer to this client");
        }
        if let Mode::Server(subnet) = &config.mode {
            let (read, skipped) = Leases::read_text(subnet.pool, &leases.to_text());
            assert_eq!(skipped, 0, "{read:?}");
        }
    }
});
