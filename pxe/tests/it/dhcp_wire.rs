//! Requests as bytes, and replies read by another implementation (dhcproto).

use std::{net::Ipv4Addr, time::Instant};

use dhcproto::{
    Decodable, Decoder,
    v4::{DhcpOption, Message, OptionCode},
};
use ironwright_proto::ids::Mac;
use ironwright_pxe::{
    Now, Table,
    dhcp::{BootFiles, Config, Decision, Leases, Mode, PacketError, Pool, Port, Reply, Subnet, decide},
};

pub(crate) const MAC: Mac = Mac([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
pub(crate) const SITE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(crate) const FIRST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 100);
pub(crate) const SCRIPT: &str = "http://10.0.0.2:8080/boot/52-54-00-12-34-56/ipxe";
pub(crate) const DISCOVER: u8 = 1;
pub(crate) const REQUEST: u8 = 3;

/// A request of [`MAC`], field by field as RFC 2131 figure 1 draws it.
pub(crate) fn request(kind: u8, options: &[(u8, &[u8])]) -> Vec<u8> {
    let mut packet = vec![1, 1, 6, 0, 0xde, 0xad, 0xbe, 0xef, 0, 4, 0x80, 0];
    packet.extend([0; 16]); // ciaddr, yiaddr, siaddr, giaddr
    packet.extend(MAC.0);
    packet.extend([0; 10 + 64 + 128]);
    packet.extend([99, 130, 83, 99, 53, 1, kind]);
    for (code, value) in options {
        packet.extend([*code, u8::try_from(value.len()).unwrap()]);
        packet.extend(*value);
    }
    packet.push(255);
    packet
}

pub(crate) fn with_giaddr(mut packet: Vec<u8>, relay: [u8; 4]) -> Vec<u8> {
    packet[24..28].copy_from_slice(&relay);
    packet
}

pub(crate) fn with_ciaddr(mut packet: Vec<u8>, client: [u8; 4]) -> Vec<u8> {
    packet[12..16].copy_from_slice(&client);
    packet
}

/// The options of PXE firmware of an architecture.
pub(crate) fn firmware(kind: u8, arch: u16) -> Vec<u8> {
    let class = format!("PXEClient:Arch:{arch:05}:UNDI:003001");
    request(kind, &[(60, class.as_bytes()), (93, &arch.to_be_bytes())])
}

/// A site with a table that boots [`MAC`].
pub(crate) struct Site {
    pub(crate) config: Config,
    pub(crate) table: Table,
    pub(crate) leases: Leases,
    pub(crate) now: Now,
}

impl Site {
    pub(crate) fn server() -> Self {
        let pool = Pool::new(FIRST, Ipv4Addr::new(10, 0, 0, 110)).unwrap();
        let router = Some(Ipv4Addr::new(10, 0, 0, 1));
        let dns = vec![Ipv4Addr::new(10, 0, 0, 1)];
        Self::new(Mode::Server(Subnet { pool, prefix: 24, router, dns, lease_s: 3600 }))
    }

    pub(crate) fn proxy() -> Self {
        Self::new(Mode::Proxy)
    }

    fn new(mode: Mode) -> Self {
        let boot = BootFiles {
            server: SITE,
            http_port: 8080,
            bios: Some("undionly.kpxe".into()),
            x64_uefi: Some("ipxe.efi".into()),
            arm64_uefi: None,
        };
        let now = Now { unix_ms: 1_000_000, mono: Instant::now() };
        let mut table = Table { lease_until: None, ..Table::default() };
        table.local.insert(MAC);
        Self { config: Config { mode, boot }, table, leases: Leases::default(), now }
    }

    pub(crate) fn try_decide(&mut self, packet: &[u8], port: Port) -> Result<Decision, PacketError> {
        let from = if port == Port::Dhcp { "0.0.0.0:68" } else { "10.0.0.100:4011" };
        let via = (port, from.parse().unwrap());
        decide(&self.config, &self.table, &mut self.leases, packet, via, self.now)
    }

    pub(crate) fn decide(&mut self, packet: &[u8]) -> Decision {
        self.try_decide(packet, Port::Dhcp).unwrap()
    }

    pub(crate) fn reply(&mut self, packet: &[u8]) -> Reply {
        self.decide(packet).reply.expect("a reply")
    }

    pub(crate) fn message(&mut self, packet: &[u8]) -> Message {
        decode(&self.reply(packet).bytes)
    }
}

pub(crate) fn decode(bytes: &[u8]) -> Message {
    Message::decode(&mut Decoder::new(bytes)).unwrap()
}

/// The boot file by option 67, after a check that the `file` field says the same.
pub(crate) fn boot_file(message: &Message) -> Option<String> {
    let field = message.fname().map(|name| String::from_utf8(name.to_vec()).unwrap());
    let field = field.map(|name| name.trim_end_matches('\0').to_owned());
    let option = match message.opts().get(OptionCode::BootfileName) {
        Some(DhcpOption::BootfileName(name)) => Some(String::from_utf8(name.clone()).unwrap()),
        _ => None,
    };
    assert_eq!(field, option);
    option
}

pub(crate) fn class(message: &Message) -> Option<&[u8]> {
    match message.opts().get(OptionCode::ClassIdentifier) {
        Some(DhcpOption::ClassIdentifier(class)) => Some(class),
        _ => None,
    }
}

pub(crate) fn vendor(message: &Message) -> Option<&[u8]> {
    match message.opts().get(OptionCode::VendorExtensions) {
        Some(DhcpOption::VendorExtensions(bytes)) => Some(bytes),
        _ => None,
    }
}

pub(crate) fn machine_uuid(message: &Message) -> Option<&[u8]> {
    match message.opts().get(OptionCode::ClientMachineIdentifier) {
        Some(DhcpOption::ClientMachineIdentifier(bytes)) => Some(bytes),
        _ => None,
    }
}

pub(crate) fn server_id(message: &Message) -> Option<Ipv4Addr> {
    match message.opts().get(OptionCode::ServerIdentifier) {
        Some(DhcpOption::ServerIdentifier(address)) => Some(*address),
        _ => None,
    }
}

/// Where the options end, by walking them; nothing but zeros may follow.
pub(crate) fn end_of_options(bytes: &[u8]) -> usize {
    let mut at = 240;
    while bytes[at] != 255 {
        assert_ne!(bytes[at], 0, "a pad before the end");
        at += 2 + usize::from(bytes[at + 1]);
    }
    at
}
