//! DHCP messages (RFC 2131, RFC 2132) as this client writes and reads them.

use std::{net::Ipv4Addr, time::Duration};

use dhcproto::{
    Decodable, Decoder, Encodable, Encoder,
    v4::{DhcpOption, Flags, Message, MessageType, Opcode, OptionCode},
};
use ironwright_proto::ids::Mac;

use super::sift::sift;

/// Relays and old servers drop a BOOTP payload shorter than this (RFC 1542 §2.1).
const MIN_PAYLOAD: usize = 300;
/// What we say we can take: an Ethernet frame without the IP and UDP headers.
const MAX_MESSAGE: u16 = 1472;
/// A server that gives no time is held to one hour.
const DEFAULT_LEASE_SECONDS: u32 = 3600;
/// Shorter leases would make us renew all the time.
const MIN_LEASE_SECONDS: u32 = 30;
/// `resolv.conf` takes this many (MAXNS).
const MAX_NAME_SERVERS: usize = 3;
/// The magic cookie of RFC 2131 §3 and where it stands.
const COOKIE: [u8; 4] = [99, 130, 83, 99];
const COOKIE_AT: usize = 236;
/// Hardware type of Ethernet, which begins a client identifier made from a MAC (RFC 2132 §9.14).
const ETHERNET: u8 = 1;

/// What a server gave us, or offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Our address.
    pub address: Ipv4Addr,
    /// Length of the network prefix, 1 to 32.
    pub prefix: u8,
    /// Default router.
    pub router: Option<Ipv4Addr>,
    /// Name servers, at most 3.
    pub name_servers: Vec<Ipv4Addr>,
    /// The server that gave it.
    pub server: Ipv4Addr,
    /// How long it holds, counted from our request.
    pub holds: Duration,
    /// T1: from here we ask this server again.
    pub renew_after: Duration,
    /// T2: from here we ask any server.
    pub rebind_after: Duration,
}

/// A server's answer to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// DHCPOFFER.
    Offer(Lease),
    /// DHCPACK.
    Ack(Lease),
    /// DHCPNAK, by the server of this address if it says so.
    Nak(Option<Ipv4Addr>),
}

/// Why a datagram is no answer to us.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// Not DHCP at all.
    #[error("the datagram is not a DHCP message")]
    Undecodable,
    /// Somebody's question.
    #[error("the message is no reply")]
    NotAReply,
    /// An answer to another exchange.
    #[error("the reply is to another transaction")]
    OtherTransaction,
    /// An answer to another machine.
    #[error("the reply is for another hardware address")]
    OtherClient,
    /// BOOTP, or a type that no client gets.
    #[error("the reply has no message type that a client takes")]
    NoType,
    /// Option 54 is needed to say which offer we take.
    #[error("the reply has no server identifier")]
    NoServer,
    /// A proxyDHCP offer has none; others must have a usable one.
    #[error("the reply offers no usable address ({0})")]
    NoAddress(Ipv4Addr),
    /// Not ones followed by zeros.
    #[error("the subnet mask {0} is not contiguous")]
    BadMask(Ipv4Addr),
}

/// What a request is about.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ask<'a> {
    /// DHCPDISCOVER: who has an address for us?
    Discover,
    /// DHCPREQUEST that takes an offer.
    Take(&'a Lease),
    /// DHCPREQUEST that keeps what we have.
    Keep(&'a Lease),
}

/// Writes a request. `seconds` is since we began to ask.
pub(super) fn request(ask: Ask<'_>, mac: Mac, xid: u32, seconds: u16) -> Vec<u8> {
    let none = Ipv4Addr::UNSPECIFIED;
    let ciaddr = if let Ask::Keep(lease) = ask { lease.address } else { none };
    let mut message = Message::new_with_id(xid, ciaddr, none, none, none, &mac.0);
    // Without an address we can only hear broadcasts; with one, unicast is kinder.
    let flags = Flags::default();
    message.set_flags(if ciaddr == none { flags.set_broadcast() } else { flags }).set_secs(seconds);
    let kind = if matches!(ask, Ask::Discover) { MessageType::Discover } else { MessageType::Request };
    let options = message.opts_mut();
    options.insert(DhcpOption::MessageType(kind));
    // The same identifier as network boot ROMs send, so that a server gives the same address (D13).
    options.insert(DhcpOption::ClientIdentifier([&[ETHERNET][..], &mac.0[..]].concat()));
    options.insert(DhcpOption::MaxMessageSize(MAX_MESSAGE));
    options.insert(DhcpOption::ParameterRequestList(vec![
        OptionCode::SubnetMask,
        OptionCode::Router,
        OptionCode::DomainNameServer,
        OptionCode::AddressLeaseTime,
        OptionCode::ServerIdentifier,
        OptionCode::Renewal,
        OptionCode::Rebinding,
    ]));
    if let Ask::Take(lease) = ask {
        options.insert(DhcpOption::RequestedIpAddress(lease.address));
        options.insert(DhcpOption::ServerIdentifier(lease.server));
    }
    let mut bytes = Vec::with_capacity(MIN_PAYLOAD);
    // Encoding can fail only on options longer than 255 bytes; ours are all short and fixed.
    message.encode(&mut Encoder::new(&mut bytes)).expect("a request of short options can be encoded");
    if bytes.len() < MIN_PAYLOAD {
        bytes.resize(MIN_PAYLOAD, 0);
    }
    bytes
}

/// Reads an answer to the transaction `xid` of the interface `mac`.
pub fn parse(bytes: &[u8], xid: u32, mac: Mac) -> Result<Reply, ReplyError> {
    if !bytes.get(COOKIE_AT..).is_some_and(|rest| rest.starts_with(&COOKIE)) {
        return Err(ReplyError::Undecodable);
    }
    let message = Message::decode(&mut Decoder::new(&sift(bytes))).map_err(|_| ReplyError::Undecodable)?;
    if message.opcode() != Opcode::BootReply {
        return Err(ReplyError::NotAReply);
    }
    if message.xid() != xid {
        return Err(ReplyError::OtherTransaction);
    }
    // `hlen` is the peer's; the accessor that trusts it panics where it is above 16.
    if message.hlen() != 6 || message.chaddr() != mac.0 {
        return Err(ReplyError::OtherClient);
    }
    match message.opts().msg_type() {
        Some(MessageType::Offer) => lease(&message).map(Reply::Offer),
        Some(MessageType::Ack) => lease(&message).map(Reply::Ack),
        Some(MessageType::Nak) => Ok(Reply::Nak(address_option(&message, OptionCode::ServerIdentifier))),
        _ => Err(ReplyError::NoType),
    }
}

fn lease(message: &Message) -> Result<Lease, ReplyError> {
    let address = message.yiaddr();
    let unusable =
        address.is_unspecified() || address.is_broadcast() || address.is_multicast() || address.is_loopback();
    if unusable {
        return Err(ReplyError::NoAddress(address));
    }
    let server = address_option(message, OptionCode::ServerIdentifier).ok_or(ReplyError::NoServer)?;
    let prefix = match address_option(message, OptionCode::SubnetMask) {
        Some(mask) => prefix_of(mask)?,
        None => class_prefix(address),
    };
    let list = |code| match message.opts().get(code) {
        Some(DhcpOption::Router(list) | DhcpOption::DomainNameServer(list)) => list.as_slice(),
        _ => &[],
    };
    let usable = |address: &&Ipv4Addr| !address.is_unspecified();
    let (holds, renew_after, rebind_after) = times(message);
    Ok(Lease {
        address,
        prefix,
        router: list(OptionCode::Router).iter().find(usable).copied(),
        name_servers: list(OptionCode::DomainNameServer)
            .iter()
            .filter(usable)
            .take(MAX_NAME_SERVERS)
            .copied()
            .collect(),
        server,
        holds,
        renew_after,
        rebind_after,
    })
}

fn address_option(message: &Message, code: OptionCode) -> Option<Ipv4Addr> {
    match message.opts().get(code) {
        Some(DhcpOption::ServerIdentifier(address) | DhcpOption::SubnetMask(address)) => Some(*address),
        _ => None,
    }
}

/// Lease time, T1 and T2. Where the server's T1 and T2 are not in order, those of RFC 2131 §4.4.5 are used.
fn times(message: &Message) -> (Duration, Duration, Duration) {
    let number = |code| match message.opts().get(code) {
        Some(DhcpOption::AddressLeaseTime(n) | DhcpOption::Renewal(n) | DhcpOption::Rebinding(n)) => {
            Some(u64::from(*n))
        }
        _ => None,
    };
    let holds = number(OptionCode::AddressLeaseTime)
        .unwrap_or(DEFAULT_LEASE_SECONDS.into())
        .max(MIN_LEASE_SECONDS.into());
    let (renew, rebind) = match (number(OptionCode::Renewal), number(OptionCode::Rebinding)) {
        (Some(renew), Some(rebind)) if 0 < renew && renew < rebind && rebind < holds => (renew, rebind),
        (Some(renew), None) if 0 < renew && renew < holds * 7 / 8 => (renew, holds * 7 / 8),
        _ => (holds / 2, holds * 7 / 8),
    };
    (Duration::from_secs(holds), Duration::from_secs(renew), Duration::from_secs(rebind))
}

fn prefix_of(mask: Ipv4Addr) -> Result<u8, ReplyError> {
    let bits = u32::from(mask);
    let ones = bits.leading_ones();
    if ones == 0 || ones + bits.trailing_zeros() < u32::BITS {
        return Err(ReplyError::BadMask(mask));
    }
    Ok(u8::try_from(ones).unwrap_or(32))
}

/// The prefix of the address's class, for servers that give no mask.
fn class_prefix(address: Ipv4Addr) -> u8 {
    match address.octets()[0] {
        0..=127 => 8,
        128..=191 => 16,
        _ => 24,
    }
}
