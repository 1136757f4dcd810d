//! Writes BOOTP/DHCP replies (RFC 2131 section 2, RFC 2132).

use std::net::Ipv4Addr;

use super::packet::{MessageType, Request, option};

/// Relays and ROMs drop a BOOTP payload that is shorter (field report D1; RFC 1542 section 2.1).
pub const MIN_PAYLOAD: usize = 300;
const BOOTREPLY: u8 = 2;
const END: u8 = 255;
const FILE_FIELD: usize = 128;
const BROADCAST_FLAG: u16 = 0x8000;

/// A reply under construction: fixed fields first, then options in the order they are pushed.
pub(super) struct ReplyWriter<'a> {
    request: &'a Request,
    bytes: Vec<u8>,
}

/// Fixed fields that differ between replies.
#[derive(Default)]
pub(super) struct Fields<'a> {
    /// The client's address.
    pub(super) yiaddr: Option<Ipv4Addr>,
    /// The boot server.
    pub(super) siaddr: Option<Ipv4Addr>,
    /// Boot file.
    pub(super) file: &'a str,
}

impl<'a> ReplyWriter<'a> {
    pub(super) fn new(
        request: &'a Request,
        kind: MessageType,
        server: Ipv4Addr,
        fields: &Fields<'_>,
    ) -> Self {
        // A NAK that goes through a relay must be broadcast: the client has no address (RFC 2131, 4.3.2).
        let nak = kind == MessageType::Nak;
        let flags = if nak { request.flags | BROADCAST_FLAG } else { request.flags };
        let ciaddr = if nak { Ipv4Addr::UNSPECIFIED } else { request.ciaddr };
        let or_zero = |address: Option<Ipv4Addr>| address.unwrap_or(Ipv4Addr::UNSPECIFIED).octets();

        let mut bytes = Vec::with_capacity(576);
        bytes.extend([BOOTREPLY, 1, 6, 0]);
        bytes.extend(request.xid);
        bytes.extend([0, 0]);
        bytes.extend(flags.to_be_bytes());
        bytes.extend(ciaddr.octets());
        bytes.extend(or_zero(fields.yiaddr));
        bytes.extend(or_zero(fields.siaddr));
        bytes.extend(request.giaddr.octets());
        bytes.extend(request.mac.0);
        bytes.extend([0; 10]); // the rest of chaddr
        bytes.extend([0; 64]); // sname
        // What does not fit, with its NUL, travels in option 67 alone.
        let file = Some(fields.file.as_bytes()).filter(|file| file.len() < FILE_FIELD).unwrap_or_default();
        bytes.extend(file);
        bytes.resize(bytes.len() + FILE_FIELD - file.len(), 0);
        bytes.extend([99, 130, 83, 99]);

        let mut writer = Self { request, bytes };
        writer.push(option::MESSAGE_TYPE, &[kind.code()]);
        writer.push(option::SERVER_ID, &server.octets());
        writer
    }

    /// Adds an option; a value of more than 255 bytes is split (RFC 3396).
    pub(super) fn push(&mut self, code: u8, value: &[u8]) {
        if value.is_empty() {
            self.bytes.extend([code, 0]);
        }
        for part in value.chunks(255) {
            self.bytes.push(code);
            self.bytes.push(u8::try_from(part.len()).unwrap_or(u8::MAX));
            self.bytes.extend_from_slice(part);
        }
    }

    pub(super) fn push_addresses(&mut self, code: u8, addresses: &[Ipv4Addr]) {
        let octets: Vec<u8> = addresses.iter().flat_map(Ipv4Addr::octets).collect();
        self.push(code, &octets);
    }

    pub(super) fn push_seconds(&mut self, code: u8, seconds: u32) {
        self.push(code, &seconds.to_be_bytes());
    }

    /// Echoes what has to be echoed, ends the options, and pads after the end.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if let Some(client_id) = self.request.option(option::CLIENT_ID) {
            self.push(option::CLIENT_ID, client_id); // RFC 6842
        }
        if let Some(relay) = self.request.option(option::RELAY_INFORMATION) {
            self.push(option::RELAY_INFORMATION, relay); // RFC 3046 section 2.2: the last one
        }
        self.bytes.push(END);
        if self.bytes.len() < MIN_PAYLOAD {
            self.bytes.resize(MIN_PAYLOAD, 0);
        }
        self.bytes
    }
}
