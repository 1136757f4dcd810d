//! Reads BOOTP/DHCP requests (RFC 2131 section 2, RFC 2132, RFC 3396).
//!
//! Options are kept as bytes: relay information must be echoed byte for byte, and one odd option of a
//! client must not cost the others. (The decoder of dhcproto types all options; a two byte option 81 makes it
//! subtract with overflow, and option 82 comes back in another order. It is the reference in our tests.)

use std::{collections::BTreeMap, net::Ipv4Addr};

use ironwright_proto::ids::Mac;

/// Longest message we read; firmware sends at most 1500 bytes.
pub const MAX_PACKET: usize = 2048;
/// Fixed fields and magic cookie.
const HEADER: usize = 240;
const COOKIE: [u8; 4] = [99, 130, 83, 99];
const BOOTREQUEST: u8 = 1;
const ETHERNET: u8 = 1;
const PAD: u8 = 0;
const END: u8 = 255;

/// Option codes that we read or write.
pub mod option {
    #![allow(missing_docs)]
    pub const SUBNET_MASK: u8 = 1;
    pub const ROUTER: u8 = 3;
    pub const DNS: u8 = 6;
    pub const BROADCAST: u8 = 28;
    pub const VENDOR: u8 = 43;
    pub const REQUESTED_ADDRESS: u8 = 50;
    pub const LEASE_TIME: u8 = 51;
    pub const MESSAGE_TYPE: u8 = 53;
    pub const SERVER_ID: u8 = 54;
    pub const RENEWAL_TIME: u8 = 58;
    pub const REBINDING_TIME: u8 = 59;
    pub const VENDOR_CLASS: u8 = 60;
    pub const CLIENT_ID: u8 = 61;
    pub const TFTP_SERVER: u8 = 66;
    pub const BOOT_FILE: u8 = 67;
    pub const USER_CLASS: u8 = 77;
    pub const RELAY_INFORMATION: u8 = 82;
    pub const ARCHITECTURE: u8 = 93;
    pub const MACHINE_UUID: u8 = 97;
    pub const IPXE: u8 = 175;
}

/// DHCP message types (RFC 2132 section 9.6) that a server deals with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageType {
    /// 1, from clients.
    Discover,
    /// 2, from servers.
    Offer,
    /// 3, from clients.
    Request,
    /// 4, from clients.
    Decline,
    /// 5, from servers.
    Ack,
    /// 6, from servers.
    Nak,
    /// 7, from clients.
    Release,
    /// 8, from clients.
    Inform,
}

impl MessageType {
    const ALL: [Self; 8] = [
        Self::Discover,
        Self::Offer,
        Self::Request,
        Self::Decline,
        Self::Ack,
        Self::Nak,
        Self::Release,
        Self::Inform,
    ];

    /// The number on the wire.
    pub const fn code(self) -> u8 {
        self as u8 + 1
    }
}

/// Why a packet is not a request that we can answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Shorter than the fixed fields.
    #[error("DHCP packet of {0} bytes; the fixed fields alone are {HEADER}")]
    TooShort(usize),
    /// Longer than [`MAX_PACKET`].
    #[error("DHCP packet of {0} bytes; the limit is {MAX_PACKET}")]
    TooLong(usize),
    /// Field `op` is not 1.
    #[error("BOOTP field `op` is {0}, not a request")]
    NotRequest(u8),
    /// Fields `htype` and `hlen` are not those of Ethernet.
    #[error("BOOTP fields `htype` {htype} and `hlen` {hlen}; only Ethernet (1 and 6) is served")]
    Hardware {
        /// Hardware type.
        htype: u8,
        /// Length of the hardware address.
        hlen: u8,
    },
    /// Field `chaddr` is all zero or a group address.
    #[error("BOOTP field `chaddr` is not the address of one interface")]
    ClientAddress,
    /// Not the magic cookie of RFC 2131.
    #[error("the DHCP magic cookie is missing")]
    Cookie,
    /// An option is longer than the packet.
    #[error("DHCP option {0} runs past the end of the packet")]
    Truncated(u8),
    /// Option 53 is missing or unknown.
    #[error("DHCP option 53 (message type) is missing or unknown")]
    MessageType,
}

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Option 53.
    pub kind: MessageType,
    /// Transaction id, echoed.
    pub xid: [u8; 4],
    /// Flags, echoed; the topmost bit asks for a broadcast.
    pub flags: u16,
    /// Address that the client has.
    pub ciaddr: Ipv4Addr,
    /// Address of the relay agent.
    pub giaddr: Ipv4Addr,
    /// The client.
    pub mac: Mac,
    options: BTreeMap<u8, Vec<u8>>,
}

impl Request {
    /// Reads a request.
    pub fn parse(packet: &[u8]) -> Result<Self, PacketError> {
        if packet.len() > MAX_PACKET {
            return Err(PacketError::TooLong(packet.len()));
        }
        let Some((header, rest)) = packet.split_at_checked(HEADER) else {
            return Err(PacketError::TooShort(packet.len()));
        };
        let (op, htype, hlen) = (header[0], header[1], header[2]);
        if op != BOOTREQUEST {
            return Err(PacketError::NotRequest(op));
        }
        if (htype, hlen) != (ETHERNET, 6) {
            return Err(PacketError::Hardware { htype, hlen });
        }
        if header[236..] != COOKIE {
            return Err(PacketError::Cookie);
        }
        let mac = Mac(std::array::from_fn(|i| header[28 + i]));
        if mac.0[0] & 1 == 1 || mac.0 == [0; 6] {
            return Err(PacketError::ClientAddress);
        }
        let options = parse_options(rest)?;
        let kind = match options.get(&option::MESSAGE_TYPE).map(Vec::as_slice) {
            Some([code]) => MessageType::ALL.into_iter().find(|kind| kind.code() == *code),
            _ => None,
        };
        Ok(Self {
            kind: kind.ok_or(PacketError::MessageType)?,
            xid: std::array::from_fn(|i| header[4 + i]),
            flags: u16::from_be_bytes([header[10], header[11]]),
            ciaddr: address(&header[12..16]),
            giaddr: address(&header[24..28]),
            mac,
            options,
        })
    }

    /// An option's bytes.
    pub fn option(&self, code: u8) -> Option<&[u8]> {
        self.options.get(&code).map(Vec::as_slice)
    }

    /// An option that is one IPv4 address; other lengths count as absent.
    pub fn address_option(&self, code: u8) -> Option<Ipv4Addr> {
        self.option(code).filter(|bytes| bytes.len() == 4).map(address)
    }
}

fn address(bytes: &[u8]) -> Ipv4Addr {
    Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])
}

/// An option given in several parts is joined (RFC 3396). A missing End is forgiven, half an option is not.
fn parse_options(mut rest: &[u8]) -> Result<BTreeMap<u8, Vec<u8>>, PacketError> {
    let mut options = BTreeMap::<u8, Vec<u8>>::new();
    loop {
        rest = match *rest {
            [] | [END, ..] => return Ok(options),
            [PAD, ref rest @ ..] => rest,
            [code] => return Err(PacketError::Truncated(code)),
            [code, len, ref rest @ ..] => {
                let (value, rest) =
                    rest.split_at_checked(usize::from(len)).ok_or(PacketError::Truncated(code))?;
                options.entry(code).or_default().extend_from_slice(value);
                rest
            }
        };
    }
}
