//! The field reports about DHCP and PXE, and the DHCP conversation.

use std::{net::Ipv4Addr, time::Duration};

use dhcproto::v4::{DhcpOption, MessageType, OptionCode};
use ironwright_proto::ids::Mac;
use ironwright_pxe::{
    Table,
    dhcp::{Arch, Client, MAX_PACKET, PacketError, Port},
};
use proptest::prelude::*;

use crate::dhcp_wire::*;

const DIRECT: &[u8] = &[6, 1, 8, 255];

#[test]
fn d1_a_short_reply_is_padded_to_300() {
    let mut site = Site::proxy();
    let bytes = site.reply(&request(DISCOVER, &[(60, b"PXEClient"), (93, &[0, 0])])).bytes;
    assert!(end_of_options(&bytes) < 299, "the case needs a short reply");
    assert_eq!(bytes.len(), 300);

    let mut site = Site::server();
    let nak = site.reply(&request(REQUEST, &[(50, &[192, 168, 9, 9])])).bytes;
    assert_eq!(nak.len(), 300);
}

#[test]
fn d2_the_end_comes_before_the_padding() {
    for mut site in [Site::proxy(), Site::server()] {
        let bytes = site.reply(&request(DISCOVER, &[(60, b"PXEClient"), (93, &[0, 0])])).bytes;
        let end = end_of_options(&bytes);
        assert!(bytes[end + 1..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn d3_uefi_gets_its_file_from_the_very_offer_and_from_4011() {
    for mut site in [Site::proxy(), Site::server()] {
        let offer = site.message(&firmware(DISCOVER, 7));
        assert_eq!(offer.opts().msg_type(), Some(MessageType::Offer));
        assert_eq!(vendor(&offer), Some(DIRECT));
        assert_eq!(class(&offer), Some(&b"PXEClient"[..]));
        assert_eq!(boot_file(&offer).as_deref(), Some("ipxe.efi"));
        assert_eq!((offer.siaddr(), server_id(&offer)), (SITE, Some(SITE)));

        let ack = site.try_decide(&firmware(REQUEST, 7), Port::BootServer).unwrap().reply.unwrap();
        assert_eq!(ack.dest, "10.0.0.100:4011".parse().unwrap());
        let ack = decode(&ack.bytes);
        assert_eq!(ack.opts().msg_type(), Some(MessageType::Ack));
        assert_eq!(ack.yiaddr(), Ipv4Addr::UNSPECIFIED);
        assert_eq!(vendor(&ack), Some(DIRECT));
        assert_eq!(boot_file(&ack).as_deref(), Some("ipxe.efi"));
    }
}

#[test]
fn d3_no_option_60_where_boot_is_not_served() {
    let mut site = Site::server();
    site.table = Table::default();
    let decision = site.decide(&firmware(DISCOVER, 7));
    let offer = decode(&decision.reply.unwrap().bytes);
    assert_eq!((class(&offer), vendor(&offer), boot_file(&offer)), (None, None, None));
    assert_eq!(offer.siaddr(), Ipv4Addr::UNSPECIFIED);
    assert_eq!(offer.yiaddr(), FIRST, "it gets an address all the same");
    assert_eq!(decision.unknown, Some((MAC, Client::Pxe(Arch::X64Uefi))));

    let mut proxy = Site::proxy();
    proxy.table = Table::default();
    assert_eq!(proxy.decide(&firmware(DISCOVER, 7)).reply, None);
    assert_eq!(proxy.try_decide(&firmware(REQUEST, 7), Port::BootServer).unwrap().reply, None);
}

#[test]
fn d4_architectures_7_and_9_load_the_same_file() {
    let mut site = Site::server();
    for arch in [7, 9] {
        assert_eq!(boot_file(&site.message(&firmware(DISCOVER, arch))).as_deref(), Some("ipxe.efi"));
    }
    // 32 bit UEFI (6), and ARM (10, 11) for which no file is configured, get an address only.
    for arch in [1, 6, 10, 11, 0xffff] {
        let offer = site.message(&firmware(DISCOVER, arch));
        assert_eq!((boot_file(&offer), class(&offer)), (None, None), "{arch}");
    }
    site.config.boot.arm64_uefi = Some("ipxe-arm64.efi".into());
    assert_eq!(boot_file(&site.message(&firmware(DISCOVER, 11))).as_deref(), Some("ipxe-arm64.efi"));
}

#[test]
fn d5_http_boot_gets_an_absolute_url() {
    for mut site in [Site::proxy(), Site::server()] {
        let class_16 = b"HTTPClient:Arch:00016:UNDI:003001";
        let offer = site.message(&request(DISCOVER, &[(60, class_16), (93, &[0, 0x10])]));
        assert_eq!(class(&offer), Some(&b"HTTPClient"[..]));
        assert_eq!(boot_file(&offer).as_deref(), Some("http://10.0.0.2:8080/ipxe.efi"));
        assert_eq!(vendor(&offer), None, "option 43 is for PXE");

        // 32 bit UEFI HTTP boot (15): nothing to boot it with.
        let class_15 = b"HTTPClient:Arch:00015:UNDI:003001";
        let decision = site.decide(&request(DISCOVER, &[(60, class_15), (93, &[0, 0x0f])]));
        assert!(decision.reply.is_none_or(|reply| boot_file(&decode(&reply.bytes)).is_none()));
    }
}

#[test]
fn d6_architecture_is_option_93_not_the_vendor_class() {
    let mut site = Site::server();
    let plain = request(DISCOVER, &[(60, b"PXEClient"), (93, &[0, 0])]);
    assert_eq!(boot_file(&site.message(&plain)).as_deref(), Some("undionly.kpxe"));
    let both = request(DISCOVER, &[(60, b"PXEClient:Arch:00000:UNDI:002001"), (93, &[0, 7])]);
    assert_eq!(boot_file(&site.message(&both)).as_deref(), Some("ipxe.efi"));
    let class_only = request(DISCOVER, &[(60, b"PXEClient:Arch:00007:UNDI:003016")]);
    assert_eq!(boot_file(&site.message(&class_only)).as_deref(), Some("ipxe.efi"));
    for odd in [&b"PXEClient:Arch"[..], b"PXEClient:Arch:", b"PXEClient:Arch:x", b"PXEClient:\xff\xfe"] {
        let packet = request(DISCOVER, &[(60, odd)]);
        assert_eq!(boot_file(&site.message(&packet)).as_deref(), Some("undionly.kpxe"), "{odd:?}");
    }
}

#[test]
fn d7_machine_uuid_is_echoed_only_if_it_is_one() {
    let mut site = Site::proxy();
    let mut uuid = vec![0];
    uuid.extend(1..=16);
    let ask = |site: &mut Site, uuid: Option<&[u8]>| {
        let mut options: Vec<(u8, &[u8])> = vec![(60, b"PXEClient"), (93, &[0, 7])];
        options.extend(uuid.map(|uuid| (97, uuid)));
        let offer = site.message(&request(DISCOVER, &options));
        assert_eq!(boot_file(&offer).as_deref(), Some("ipxe.efi"));
        machine_uuid(&offer).map(<[u8]>::to_vec)
    };
    assert_eq!(ask(&mut site, None), None);
    assert_eq!(ask(&mut site, Some(&uuid)), Some(uuid.clone()));
    for odd in [&uuid[..16], &[&uuid[..], &[0]].concat(), &[]] {
        assert_eq!(ask(&mut site, Some(odd)), None, "{} bytes", odd.len());
    }
}

#[test]
fn d8_every_ipxe_gets_its_script() {
    for mut site in [Site::proxy(), Site::server()] {
        let markers: [(u8, &[u8]); 4] = [
            (77, b"iPXE"),
            (77, b"\x04iPXE"),
            (77, b"\x03abc\x04iPXE"),
            (175, &[0xb1, 5, 1, 0x1a, 0xf4, 0x10, 0]),
        ];
        for marker in markers {
            for arch in [0, 7] {
                let class = format!("PXEClient:Arch:{arch:05}:UNDI:003001");
                let options = [marker, (60, class.as_bytes()), (93, &[0, arch])];
                let offer = site.message(&request(DISCOVER, &options));
                assert_eq!(boot_file(&offer).as_deref(), Some(SCRIPT), "{marker:?}");
            }
        }
        // Another user class is no iPXE.
        for class in [&b"iPX"[..], b"\x04iPXF", b"\x05iPXE", b"\x00"] {
            let options = [(77, class), (60, &b"PXEClient"[..]), (93, &[0, 7])];
            assert_eq!(boot_file(&site.message(&request(DISCOVER, &options))).as_deref(), Some("ipxe.efi"));
        }
    }
}

#[test]
fn d9_there_is_no_menu() {
    for mut site in [Site::proxy(), Site::server()] {
        for packet in [firmware(DISCOVER, 0), request(DISCOVER, &[(77, b"iPXE")])] {
            let offer = site.message(&packet);
            // Sub-options 8, 9 and 10 (boot servers, menu, prompt) would be items.
            assert_eq!(vendor(&offer), Some(DIRECT));
        }
    }
}

#[test]
fn d11_a_relay_is_answered_at_its_server_port() {
    let relay = [10, 0, 9, 1];
    for mut site in [Site::proxy(), Site::server()] {
        let reply = site.reply(&with_giaddr(firmware(DISCOVER, 7), relay));
        assert_eq!(reply.dest, "10.0.9.1:67".parse().unwrap());
        assert_eq!(decode(&reply.bytes).giaddr(), Ipv4Addr::from(relay));
    }
    let mut site = Site::server();
    let nak = site.reply(&with_giaddr(request(REQUEST, &[(50, &[192, 168, 9, 9])]), relay));
    assert_eq!(nak.dest, "10.0.9.1:67".parse().unwrap());
    assert!(decode(&nak.bytes).flags().broadcast(), "the relay has to broadcast a NAK");
}

#[test]
fn d12_relay_information_is_echoed_byte_for_byte_and_last() {
    // Sub-options in descending order and one that nobody knows, over more than one option (RFC 3396).
    let long = [&[151, 200][..], &[0xaa; 200], &[2, 3, 1, 2, 3], &[1, 2, 9, 9]].concat();
    for info in [&[2, 1, 7, 1, 2, 0, 5][..], &[], &long] {
        let mut site = Site::server();
        let discover = [(82, info), (61, &[1, 2, 3][..])];
        let ack = [(82, info), (50, &FIRST.octets()[..]), (54, &SITE.octets()[..])];
        let nak = [(82, info), (50, &[192, 168, 9, 9][..])];
        let messages = [(DISCOVER, &discover[..], 2), (REQUEST, &ack[..], 5), (REQUEST, &nak[..], 6)];
        for (kind, options, answer) in messages {
            let bytes = site.reply(&request(kind, options)).bytes;
            assert_eq!(bytes[240..243], [53, 1, answer]);
            let end = end_of_options(&bytes);
            let echoed = [&[82, u8::try_from(info.len()).unwrap()][..], info].concat();
            assert_eq!(bytes[end - echoed.len()..end], echoed[..]);
        }
    }
}

#[test]
fn d13_rom_ipxe_and_os_get_one_address() {
    let mut site = Site::server();
    let mac_id = [&[1][..], &MAC.0].concat();
    let duid = [255, 0x12, 0x34, 0x56, 0x78, 0, 2, 0, 0, 0xab, 0x11];
    let mut addresses = Vec::new();
    for client_id in [None, Some(&mac_id[..]), Some(&duid[..])] {
        let options: Vec<(u8, &[u8])> = client_id.iter().map(|id| (61, *id)).collect();
        addresses.push(site.message(&request(DISCOVER, &options)).yiaddr());
        let mut options = options.clone();
        let wish = addresses[0].octets();
        options.extend([(50, &wish[..]), (54, &[10, 0, 0, 2])]);
        let ack = site.message(&request(REQUEST, &options));
        assert_eq!(ack.opts().msg_type(), Some(MessageType::Ack));
        addresses.push(ack.yiaddr());
        let echoed = ack.opts().get(OptionCode::ClientIdentifier);
        assert_eq!(echoed, client_id.map(|id| DhcpOption::ClientIdentifier(id.to_vec())).as_ref());
    }
    assert_eq!(addresses, [FIRST; 6]);
}

#[test]
fn an_address_comes_with_its_network() {
    let mut site = Site::server();
    let offer = site.message(&request(DISCOVER, &[]));
    let has = |option: DhcpOption| offer.opts().iter().any(|(_, found)| *found == option);
    assert!(has(DhcpOption::SubnetMask(Ipv4Addr::new(255, 255, 255, 0))));
    assert!(has(DhcpOption::Router(vec![Ipv4Addr::new(10, 0, 0, 1)])));
    assert!(has(DhcpOption::DomainNameServer(vec![Ipv4Addr::new(10, 0, 0, 1)])));
    assert!(has(DhcpOption::BroadcastAddr(Ipv4Addr::new(10, 0, 0, 255))));
    assert!(has(DhcpOption::AddressLeaseTime(3600)));
    assert!(has(DhcpOption::Renewal(1800)));
    assert!(has(DhcpOption::Rebinding(3150)));
    assert_eq!(boot_file(&offer), None, "an operating system is not network booted");
    assert_eq!((offer.xid(), offer.flags().broadcast()), (0xdead_beef, true));
}

#[test]
fn only_granted_addresses_are_stored_when_they_come_back() {
    const DECLINE: u8 = 4;
    const RELEASE: u8 = 7;
    let mut site = Site::server();
    let ours = [(50, &FIRST.octets()[..]), (54, &SITE.octets()[..])];
    for kind in [RELEASE, DECLINE] {
        // Strangers must not make us write to disk.
        assert!(!site.decide(&request(kind, &[])).leases_changed, "{kind}: never heard of");
        site.decide(&request(DISCOVER, &[]));
        assert!(!site.decide(&request(kind, &[])).leases_changed, "{kind}: offered only");
    }
    let mut site = Site::server();
    for (kind, stored) in [(RELEASE, true), (RELEASE, false), (DECLINE, true)] {
        if stored {
            site.decide(&request(DISCOVER, &[]));
            assert!(site.decide(&request(REQUEST, &ours)).leases_changed);
        }
        assert_eq!(site.decide(&request(kind, &[])).leases_changed, stored, "{kind}");
    }
}

#[test]
fn what_is_declined_or_released_to_another_server_is_not_ours() {
    const DECLINE: u8 = 4;
    const RELEASE: u8 = 7;
    let mut site = Site::server();
    let ours = [(50, &FIRST.octets()[..]), (54, &SITE.octets()[..])];
    site.decide(&request(DISCOVER, &[]));
    site.decide(&request(REQUEST, &ours));
    let other: &[u8] = &[10, 0, 0, 9];
    for (kind, options) in [
        (DECLINE, [(50, &FIRST.octets()[..]), (54, other)]),
        (RELEASE, [(50, &FIRST.octets()[..]), (54, other)]),
        (DECLINE, [(50, &[10, 0, 0, 101][..]), (54, &SITE.octets())]),
    ] {
        assert!(!site.decide(&request(kind, &options)).leases_changed, "{kind}");
        assert_eq!(site.leases.granted(MAC, site.now.unix_ms), Some(FIRST), "{kind}");
    }
    assert!(site.decide(&request(DECLINE, &ours)).leases_changed);
    assert_eq!(site.leases.known(MAC), None);
}

#[test]
fn leases_are_stored_again_when_the_clock_was_set() {
    let mut site = Site::server();
    let ours = [(50, &FIRST.octets()[..]), (54, &SITE.octets()[..])];
    site.decide(&request(DISCOVER, &[]));
    site.decide(&request(REQUEST, &ours));
    site.now.unix_ms += 86_400_000;
    for stored in [true, false] {
        assert_eq!(site.decide(&request(DISCOVER, &[])).leases_changed, stored);
    }
    assert_eq!(site.leases.granted(MAC, site.now.unix_ms + 3_599_999), Some(FIRST));
    assert_eq!(site.leases.granted(MAC, site.now.unix_ms + 3_600_000), None);
}

#[test]
fn a_full_pool_of_offers_to_strangers_makes_room_for_an_enrolled_machine() {
    let from = |n: u8, packet: &[u8]| {
        let mut packet = packet.to_vec();
        packet[28..34].copy_from_slice(&[2, 0, 0, 0, 0, n]);
        packet
    };
    let mut site = Site::server();
    // The pool is 10.0.0.100 to 10.0.0.110.
    for n in 0..11 {
        let offer = site.message(&from(n, &request(DISCOVER, &[])));
        assert_eq!(offer.yiaddr(), Ipv4Addr::new(10, 0, 0, 100 + n));
        site.now.unix_ms += 1;
    }
    assert_eq!(site.decide(&from(11, &request(DISCOVER, &[]))).reply, None, "one stranger more");
    assert_eq!(site.message(&request(DISCOVER, &[])).yiaddr(), FIRST, "the table holds it");

    // The stranger that was offered it is refused, and starts over (RFC 2131 section 3.1).
    let ours = [(50, &FIRST.octets()[..]), (54, &SITE.octets()[..])];
    let refused = site.message(&from(0, &request(REQUEST, &ours)));
    assert_eq!(refused.opts().msg_type(), Some(MessageType::Nak));
    assert_eq!(site.message(&request(REQUEST, &ours)).opts().msg_type(), Some(MessageType::Ack));
}

#[test]
fn a_request_is_acknowledged_refused_or_not_ours() {
    let kind = |site: &mut Site, options: &[(u8, &[u8])]| {
        let decision = site.decide(&request(REQUEST, options));
        let kind = decision.reply.map(|reply| decode(&reply.bytes).opts().msg_type().unwrap());
        assert_eq!(decision.leases_changed, kind == Some(MessageType::Ack), "durable before it is sent");
        kind
    };
    let mut site = Site::server();
    assert_eq!(kind(&mut site, &[(50, &FIRST.octets())]), None, "init-reboot without a record: silence");
    let ours = [(50, &FIRST.octets()[..]), (54, &SITE.octets()[..])];
    assert_eq!(kind(&mut site, &ours), Some(MessageType::Nak), "the offer was lost");
    site.decide(&request(DISCOVER, &[]));
    assert_eq!(kind(&mut site, &[(50, &FIRST.octets()), (54, &[10, 0, 0, 9])]), None, "another server");
    assert_eq!(kind(&mut site, &[(50, &[10, 0, 0, 101])]), Some(MessageType::Nak), "not its address");
    assert_eq!(kind(&mut site, &ours), Some(MessageType::Ack));
    assert_eq!(kind(&mut site, &[(50, &FIRST.octets())]), Some(MessageType::Ack), "init-reboot");

    let renewal = site.reply(&with_ciaddr(request(REQUEST, &[]), FIRST.octets()));
    assert_eq!(renewal.dest, "10.0.0.100:68".parse().unwrap());
    let discover = site.reply(&request(DISCOVER, &[]));
    assert_eq!(discover.dest, "255.255.255.255:68".parse().unwrap());
}

#[test]
fn the_lease_of_the_site_decides_about_ramdisk_boots() {
    let mut site = Site::server();
    site.table = Table::default();
    site.table.ramdisk.insert(MAC, site.now.unix_ms + 10_000);
    assert_eq!(boot_file(&site.message(&firmware(DISCOVER, 0))), None);
    site.table.lease_until = Some(site.now.mono + Duration::from_secs(5));
    assert_eq!(boot_file(&site.message(&firmware(DISCOVER, 0))).as_deref(), Some("undionly.kpxe"));
    site.now.mono += Duration::from_secs(5);
    assert_eq!(boot_file(&site.message(&firmware(DISCOVER, 0))), None);
}

#[test]
fn packets_that_are_no_requests_are_named() {
    let good = request(DISCOVER, &[]);
    let change = |at: usize, to: u8| {
        let mut packet = good.clone();
        packet[at] = to;
        packet
    };
    let with_end = |tail: &[u8]| [&good[..good.len() - 1], tail].concat();
    for (packet, error) in [
        (vec![], PacketError::TooShort(0)),
        (good[..239].to_vec(), PacketError::TooShort(239)),
        (vec![0; MAX_PACKET + 1], PacketError::TooLong(2049)),
        (change(0, 2), PacketError::NotRequest(2)),
        (change(1, 32), PacketError::Hardware { htype: 32, hlen: 6 }),
        (change(2, 255), PacketError::Hardware { htype: 1, hlen: 255 }),
        (change(28, 0x53), PacketError::ClientAddress),
        (change(236, 0), PacketError::Cookie),
        (change(242, 0), PacketError::MessageType),
        (change(242, 9), PacketError::MessageType),
        (good[..240].to_vec(), PacketError::MessageType),
        (with_end(&[12]), PacketError::Truncated(12)),
        (with_end(&[12, 5, 1]), PacketError::Truncated(12)),
    ] {
        assert_eq!(Site::server().try_decide(&packet, Port::Dhcp), Err(error));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_answered_or_refused(
        head in proptest::collection::vec(any::<u8>(), 240..=240), tail: Vec<u8>, real: bool, mac: [u8; 6],
        boot_server: bool,
    ) {
        let mut packet = if real { request(DISCOVER, &[]) } else { head };
        packet[28..34].copy_from_slice(&mac);
        if real {
            packet.pop();
        }
        packet.extend(tail);
        let port = if boot_server { Port::BootServer } else { Port::Dhcp };
        for mut site in [Site::server(), Site::proxy()] {
            site.table.local.insert(Mac(mac));
            if let Ok(decision) = site.try_decide(&packet, port) && let Some(reply) = decision.reply {
                prop_assert!((300..=2 * MAX_PACKET).contains(&reply.bytes.len()));
                end_of_options(&reply.bytes);
            }
        }
    }
}
