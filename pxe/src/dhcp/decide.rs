//! The decision: a packet, the boot table and the time come in, a reply goes out.
//!
//! ```text
//! server mode      DISCOVER ─▶ OFFER       REQUEST ─▶ ACK, NAK or silence     INFORM ─▶ ACK
//! proxy mode       DISCOVER ─▶ OFFER without an address (the other server gives it)
//! port 4011, both  DISCOVER, REQUEST, INFORM ─▶ ACK without an address
//! ```
//! Boot options go into every reply to a client that the table boots, and into none else. Without boot
//! options there is no option 60 either, or firmware would go on looking for a boot server (field report D3).

use std::net::{Ipv4Addr, SocketAddrV4};

use ironwright_proto::ids::Mac;

use super::{
    client::{BootFile, BootFiles, Client},
    leases::{Leases, Pool},
    packet::{MessageType, PacketError, Request, option},
    reply::{Fields, ReplyWriter},
};
use crate::{now::Now, table::Table};

const CLIENT_PORT: u16 = 68;
const SERVER_PORT: u16 = 67;
/// Option 43: sub-option 6 (PXE_DISCOVERY_CONTROL) = 8, "load the boot file of this very offer", and the end
/// of the sub-options. No boot menu, hence one item at most (field reports D3 and D9; PXE 2.1 table 2-1).
const USE_THIS_OFFER: [u8; 4] = [6, 1, 8, 255];
/// Option 97 is a type octet and a 16 octet UUID (RFC 4578 section 2.3).
const MACHINE_UUID_LEN: usize = 17;

/// What the site's operator decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Whether we give addresses.
    pub mode: Mode,
    /// Our address and boot files.
    pub boot: BootFiles,
}

/// Who gives addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// We do.
    Server(Subnet),
    /// Another DHCP server does; we only add boot options.
    Proxy,
}

/// What a client is told about its network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subnet {
    /// Addresses to give out.
    pub pool: Pool,
    /// Length of the network prefix.
    pub prefix: u8,
    /// Default router.
    pub router: Option<Ipv4Addr>,
    /// Resolvers.
    pub dns: Vec<Ipv4Addr>,
    /// Seconds that an address is granted for.
    pub lease_s: u32,
}

/// The port that a packet arrived at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// UDP 67.
    Dhcp,
    /// UDP 4011, where PXE firmware asks the boot server that it found.
    BootServer,
}

/// A packet to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The UDP payload.
    pub bytes: Vec<u8>,
    /// Where to; 255.255.255.255 where the client has no address yet.
    pub dest: SocketAddrV4,
}

/// What follows from a packet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// To be sent once changed leases are on disk.
    pub reply: Option<Reply>,
    /// The leases have to be on disk before the reply is sent.
    pub leases_changed: bool,
    /// A machine that wants to network boot and is not in the table.
    pub unknown: Option<(Mac, Client)>,
}

/// Decides about one packet. An error means that it is dropped.
pub fn decide(
    config: &Config,
    table: &Table,
    leases: &mut Leases,
    packet: &[u8],
    (port, from): (Port, SocketAddrV4),
    now: Now,
) -> Result<Decision, PacketError> {
    let request = Request::parse(packet)?;
    let client = Client::of(&request);
    let known = table.boots(request.mac, now);
    let boot = if known { config.boot.choose(client, request.mac) } else { None };

    let mut decision = match (port, &config.mode) {
        (Port::BootServer, _) => boot_server(config, &request, boot.as_ref(), from),
        (Port::Dhcp, Mode::Proxy) => proxy(config, &request, boot.as_ref()),
        (Port::Dhcp, Mode::Server(subnet)) => {
            let (request, boot, now_ms) = (&request, boot.as_ref(), now.unix_ms);
            let clock_was_set = leases.follow(now, subnet.lease_s);
            let mut decision = Conversation { config, table, subnet, request, boot, now_ms }.answer(leases);
            decision.leases_changed |= clock_was_set;
            decision
        }
    };
    if !known && client != Client::NoBoot {
        decision.unknown = Some((request.mac, client));
    }
    Ok(decision)
}

/// An offer with boot options and no address, beside the offer of the network's own server.
fn proxy(config: &Config, request: &Request, boot: Option<&BootFile>) -> Decision {
    let Some(boot) = boot.filter(|_| request.kind == MessageType::Discover) else {
        return Decision::default();
    };
    let bytes = Answer { config, request, boot: Some(boot) }.without_address(MessageType::Offer);
    Decision { reply: Some(Reply { bytes, dest: destination(request) }), ..Decision::default() }
}

fn boot_server(config: &Config, request: &Request, boot: Option<&BootFile>, from: SocketAddrV4) -> Decision {
    use MessageType::{Discover, Inform, Request as Ask};
    let Some(boot) = boot.filter(|_| matches!(request.kind, Discover | Ask | Inform)) else {
        return Decision::default();
    };
    let bytes = Answer { config, request, boot: Some(boot) }.without_address(MessageType::Ack);
    // The client has an address by now, and waits at the port it asked from (PXE 2.1 section 2.2.5).
    let dest = if from.ip().is_unspecified() { destination(request) } else { from };
    Decision { reply: Some(Reply { bytes, dest }), ..Decision::default() }
}

/// Where a reply to port 67 goes (RFC 2131 section 4.1; field report D11: relays listen at the server port).
fn destination(request: &Request) -> SocketAddrV4 {
    if !request.giaddr.is_unspecified() {
        SocketAddrV4::new(request.giaddr, SERVER_PORT)
    } else if !request.ciaddr.is_unspecified() {
        SocketAddrV4::new(request.ciaddr, CLIENT_PORT)
    } else {
        SocketAddrV4::new(Ipv4Addr::BROADCAST, CLIENT_PORT)
    }
}

/// Writes replies to one request.
#[derive(Clone, Copy)]
struct Answer<'a> {
    config: &'a Config,
    request: &'a Request,
    boot: Option<&'a BootFile>,
}

impl Answer<'_> {
    fn begin(&self, kind: MessageType, yiaddr: Option<Ipv4Addr>) -> ReplyWriter<'_> {
        let server = self.config.boot.server;
        let fields = Fields {
            yiaddr,
            siaddr: self.boot.map(|_| server),
            file: self.boot.map_or("", |boot| boot.name.as_str()),
        };
        ReplyWriter::new(self.request, kind, server, &fields)
    }

    fn finish(&self, mut reply: ReplyWriter<'_>) -> Vec<u8> {
        if let Some(boot) = self.boot {
            reply.push(option::VENDOR_CLASS, boot.class);
            if boot.class == b"PXEClient" {
                reply.push(option::VENDOR, &USE_THIS_OFFER);
            }
            reply.push(option::TFTP_SERVER, self.config.boot.server.to_string().as_bytes());
            reply.push(option::BOOT_FILE, boot.name.as_bytes());
            // Field report D7: clients without a UUID are served, odd lengths are ignored.
            let uuid = self.request.option(option::MACHINE_UUID);
            if let Some(uuid) = uuid.filter(|uuid| uuid.len() == MACHINE_UUID_LEN) {
                reply.push(option::MACHINE_UUID, uuid);
            }
        }
        reply.finish()
    }

    fn without_address(&self, kind: MessageType) -> Vec<u8> {
        self.finish(self.begin(kind, None))
    }
}

/// One request in server mode.
struct Conversation<'a> {
    config: &'a Config,
    table: &'a Table,
    subnet: &'a Subnet,
    request: &'a Request,
    boot: Option<&'a BootFile>,
    now_ms: i64,
}

impl Conversation<'_> {
    fn answer(&self, leases: &mut Leases) -> Decision {
        let request = self.request;
        if self.is_for_another_server() {
            return Decision::default();
        }
        match request.kind {
            MessageType::Discover => {
                let wish = request.address_option(option::REQUESTED_ADDRESS);
                let enrolled = |mac| self.table.holds(mac);
                let address = leases.offer(self.subnet.pool, request.mac, wish, enrolled, self.now_ms);
                self.reply(address.map(|address| self.with_address(MessageType::Offer, address)))
            }
            MessageType::Request => self.request(leases),
            MessageType::Inform => self.reply(Some(self.informed())),
            MessageType::Decline => {
                let declined = request.address_option(option::REQUESTED_ADDRESS);
                if declined.is_some() && declined != leases.known(request.mac) {
                    return Decision::default(); // a late copy must not cost the client its next address
                }
                let leases_changed = leases.decline(self.subnet.pool, request.mac, self.now_ms);
                Decision { leases_changed, ..Decision::default() }
            }
            MessageType::Release => {
                let leases_changed = leases.release(request.mac, self.now_ms);
                Decision { leases_changed, ..Decision::default() }
            }
            MessageType::Offer | MessageType::Ack | MessageType::Nak => Decision::default(),
        }
    }

    /// Broadcast messages name the server that they are for (RFC 2131 table 5). Where a client takes another
    /// server's offer, ours ends by itself.
    fn is_for_another_server(&self) -> bool {
        use MessageType::{Decline, Release, Request as Ask};
        let named = self.request.address_option(option::SERVER_ID);
        matches!(self.request.kind, Ask | Decline | Release)
            && named.is_some_and(|server| server != self.config.boot.server)
    }

    /// RFC 2131 section 4.3.2.
    fn request(&self, leases: &mut Leases) -> Decision {
        let request = self.request;
        let selected = request.address_option(option::SERVER_ID);
        let wanted = request.address_option(option::REQUESTED_ADDRESS).unwrap_or(request.ciaddr);
        // SELECTING knows us; the other states may ask for what another server once gave, and a server
        // without a record of the client stays silent then.
        let Some(ours) = leases.known(request.mac) else {
            let foreign = selected.is_none() && self.in_subnet(wanted);
            return if foreign { Decision::default() } else { self.refuse() };
        };
        if wanted != ours || !self.subnet.pool.contains(ours) {
            return self.refuse();
        }
        leases.grant(request.mac, self.subnet.lease_s, self.now_ms);
        let ack = self.reply(Some(self.with_address(MessageType::Ack, ours)));
        Decision { leases_changed: true, ..ack }
    }

    fn in_subnet(&self, address: Ipv4Addr) -> bool {
        let mask = u32::from(mask(self.subnet.prefix));
        u32::from(address) & mask == u32::from(self.config.boot.server) & mask
    }

    fn reply(&self, bytes: Option<Vec<u8>>) -> Decision {
        let reply = bytes.map(|bytes| Reply { bytes, dest: destination(self.request) });
        Decision { reply, ..Decision::default() }
    }

    /// A NAK never goes to the address that the client must not use.
    fn refuse(&self) -> Decision {
        let answer = Answer { config: self.config, request: self.request, boot: None };
        let bytes = answer.without_address(MessageType::Nak);
        let relay = self.request.giaddr;
        let dest = if relay.is_unspecified() {
            SocketAddrV4::new(Ipv4Addr::BROADCAST, CLIENT_PORT)
        } else {
            SocketAddrV4::new(relay, SERVER_PORT)
        };
        Decision { reply: Some(Reply { bytes, dest }), ..Decision::default() }
    }

    fn with_address(&self, kind: MessageType, address: Ipv4Addr) -> Vec<u8> {
        let answer = Answer { config: self.config, request: self.request, boot: self.boot };
        let lease_s = self.subnet.lease_s;
        let mut reply = answer.begin(kind, Some(address));
        reply.push_seconds(option::LEASE_TIME, lease_s);
        reply.push_seconds(option::RENEWAL_TIME, lease_s / 2);
        reply.push_seconds(option::REBINDING_TIME, lease_s / 8 * 7);
        self.push_network(&mut reply);
        answer.finish(reply)
    }

    fn informed(&self) -> Vec<u8> {
        let answer = Answer { config: self.config, request: self.request, boot: self.boot };
        let mut reply = answer.begin(MessageType::Ack, None);
        self.push_network(&mut reply);
        answer.finish(reply)
    }

    fn push_network(&self, reply: &mut ReplyWriter<'_>) {
        let mask = mask(self.subnet.prefix);
        let broadcast = u32::from(self.config.boot.server) | !u32::from(mask);
        reply.push_addresses(option::SUBNET_MASK, &[mask]);
        if let Some(router) = self.subnet.router {
            reply.push_addresses(option::ROUTER, &[router]);
        }
        if !self.subnet.dns.is_empty() {
            reply.push_addresses(option::DNS, &self.subnet.dns);
        }
        reply.push_addresses(option::BROADCAST, &[broadcast.into()]);
    }
}

fn mask(prefix: u8) -> Ipv4Addr {
    u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0).into()
}
