//! The client against messages that a server library made, and against bad ones.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use dhcproto::{
    Decodable, Decoder, Encodable, Encoder,
    v4::{DhcpOption, Message, MessageType, Opcode, OptionCode},
};
use ironwright_proto::ids::Mac;

use super::{
    client::{Client, Effect, Input},
    message::{Lease, Reply, ReplyError, parse},
};

const MAC: Mac = Mac([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 50);

fn decode(bytes: &[u8]) -> Message {
    Message::decode(&mut Decoder::new(bytes)).unwrap()
}

fn encode(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut Encoder::new(&mut bytes)).unwrap();
    bytes
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// A server's answer to `request`, with a lease of 600 s.
fn answer(request: &Message, kind: MessageType) -> Message {
    let none = Ipv4Addr::UNSPECIFIED;
    let mut message = Message::new_with_id(request.xid(), none, ADDRESS, SERVER, none, &MAC.0);
    message.set_opcode(Opcode::BootReply);
    let options = message.opts_mut();
    options.insert(DhcpOption::MessageType(kind));
    options.insert(DhcpOption::ServerIdentifier(SERVER));
    options.insert(DhcpOption::SubnetMask(Ipv4Addr::new(255, 255, 255, 0)));
    options.insert(DhcpOption::Router(vec![SERVER]));
    options.insert(DhcpOption::DomainNameServer(vec![SERVER, Ipv4Addr::new(9, 9, 9, 9)]));
    options.insert(DhcpOption::AddressLeaseTime(600));
    message
}

fn expected_lease() -> Lease {
    Lease {
        address: ADDRESS,
        prefix: 24,
        router: Some(SERVER),
        name_servers: vec![SERVER, Ipv4Addr::new(9, 9, 9, 9)],
        server: SERVER,
        holds: seconds(600),
        renew_after: seconds(300),
        rebind_after: seconds(525),
    }
}

/// The one request among the effects.
fn sent(effects: &[Effect]) -> (Ipv4Addr, Message) {
    let mut sends = effects.iter().filter_map(|effect| match effect {
        Effect::Send { to, bytes } => Some((*to, bytes)),
        _ => None,
    });
    let (to, bytes) = sends.next().expect("a request");
    assert!(sends.next().is_none(), "one request only");
    assert!(bytes.len() >= 300, "relays drop short ones");
    (to, decode(bytes))
}

fn kind(message: &Message) -> MessageType {
    message.opts().msg_type().unwrap()
}

fn reply(client: &mut Client, request: &Message, kind: MessageType, now: Instant) -> Vec<Effect> {
    client.step(Input::Datagram(&encode(&answer(request, kind))), now)
}

/// A client that has its lease since `now`.
fn bound(now: Instant) -> Client {
    let mut client = Client::new(MAC, 7, now);
    let (_, discover) = sent(&client.step(Input::Time, now));
    let (_, request) = sent(&reply(&mut client, &discover, MessageType::Offer, now));
    let effects = reply(&mut client, &request, MessageType::Ack, now);
    assert_eq!(effects, [Effect::Bound(expected_lease())]);
    client
}

#[test]
fn discover_offer_request_ack_gives_the_lease() {
    let now = Instant::now();
    let mut client = Client::new(MAC, 7, now);
    let (to, discover) = sent(&client.step(Input::Time, now));
    assert_eq!((to, kind(&discover)), (Ipv4Addr::BROADCAST, MessageType::Discover));
    assert!(discover.flags().broadcast());
    assert_eq!(discover.chaddr(), MAC.0);

    let (to, request) = sent(&reply(&mut client, &discover, MessageType::Offer, now));
    assert_eq!((to, kind(&request)), (Ipv4Addr::BROADCAST, MessageType::Request));
    let option = |code| request.opts().get(code).cloned();
    assert_eq!(option(OptionCode::RequestedIpAddress), Some(DhcpOption::RequestedIpAddress(ADDRESS)));
    assert_eq!(option(OptionCode::ServerIdentifier), Some(DhcpOption::ServerIdentifier(SERVER)));

    let effects = reply(&mut client, &request, MessageType::Ack, now);
    assert_eq!(effects, [Effect::Bound(expected_lease())]);
    assert_eq!(client.wake(), now + seconds(300));
}

#[test]
fn d13_client_identifier_is_the_one_of_boot_roms() {
    let now = Instant::now();
    let (_, discover) = sent(&Client::new(MAC, 7, now).step(Input::Time, now));
    let expected = DhcpOption::ClientIdentifier(vec![1, 0x52, 0x54, 0, 0x12, 0x34, 0x56]);
    assert_eq!(discover.opts().get(OptionCode::ClientIdentifier), Some(&expected));
}

#[test]
fn discovers_are_repeated_ever_more_slowly() {
    let start = Instant::now();
    let mut client = Client::new(MAC, 7, start);
    let mut now = start;
    for pause in [1, 2, 4, 8, 16, 16] {
        assert_eq!(kind(&sent(&client.step(Input::Time, now)).1), MessageType::Discover);
        let waited = client.wake() - now;
        assert!(waited >= seconds(pause) && waited <= seconds(pause).mul_f64(1.25), "{waited:?}");
        assert!(client.step(Input::Time, now).is_empty(), "not before its time");
        now = client.wake();
    }
}

#[test]
fn an_unanswered_or_refused_request_starts_the_search_anew() {
    let mut now = Instant::now();
    let mut client = Client::new(MAC, 7, now);
    let (_, discover) = sent(&client.step(Input::Time, now));
    let mut request = sent(&reply(&mut client, &discover, MessageType::Offer, now)).1;
    for _ in 1..4 {
        now = client.wake();
        request = sent(&client.step(Input::Time, now)).1;
        assert_eq!(kind(&request), MessageType::Request);
    }
    now = client.wake();
    let (_, again) = sent(&client.step(Input::Time, now));
    assert_eq!(kind(&again), MessageType::Discover);
    assert_ne!(again.xid(), request.xid());

    let (_, request) = sent(&reply(&mut client, &again, MessageType::Offer, now));
    let effects = reply(&mut client, &request, MessageType::Nak, now);
    assert_eq!(kind(&sent(&effects).1), MessageType::Discover);
}

#[test]
fn the_lease_is_renewed_by_its_server_at_t1() {
    let start = Instant::now();
    let mut client = bound(start);
    let t1 = start + seconds(300);
    let (to, request) = sent(&client.step(Input::Time, t1));
    assert_eq!(to, SERVER);
    assert_eq!((kind(&request), request.ciaddr()), (MessageType::Request, ADDRESS));
    assert!(!request.flags().broadcast());
    // RFC 2131 table 5: neither option may be in a renewal.
    for code in [OptionCode::RequestedIpAddress, OptionCode::ServerIdentifier] {
        assert_eq!(request.opts().get(code), None);
    }
    let effects = reply(&mut client, &request, MessageType::Ack, t1 + seconds(1));
    assert_eq!(effects, [Effect::Bound(expected_lease())]);
    assert_eq!(client.wake(), t1 + seconds(300), "counted from the request");
}

#[test]
fn a_lease_counts_from_the_first_request_that_its_ack_may_answer() {
    let start = Instant::now();
    let mut client = Client::new(MAC, 7, start);
    let (_, discover) = sent(&client.step(Input::Time, start));
    let offered = start + seconds(3);
    let (_, first) = sent(&reply(&mut client, &discover, MessageType::Offer, offered));
    let resent = client.wake();
    let (_, second) = sent(&client.step(Input::Time, resent));
    assert_eq!(first.xid(), second.xid());
    reply(&mut client, &second, MessageType::Ack, resent);
    let t1 = offered + seconds(300);
    assert_eq!(client.wake(), t1);

    // T1 to T2 is 225 s, so the second try is 112.5 s after the first, and with another number.
    let (_, first) = sent(&client.step(Input::Time, t1));
    let again = t1 + Duration::from_millis(112_500);
    let (_, second) = sent(&client.step(Input::Time, again));
    assert_ne!(first.xid(), second.xid());
    assert!(reply(&mut client, &first, MessageType::Ack, again).is_empty());
    reply(&mut client, &second, MessageType::Ack, again + seconds(1));
    assert_eq!(client.wake(), again + seconds(300));
}

#[test]
fn a_lost_renewal_is_asked_of_everyone_and_then_given_up() {
    let start = Instant::now();
    let mut client = bound(start);
    let mut to_server = 0;
    let mut to_all = 0;
    loop {
        let now = client.wake();
        let effects = client.step(Input::Time, now);
        if effects.first() == Some(&Effect::Lost("nobody renewed the lease")) {
            assert_eq!(now, start + seconds(600));
            assert_eq!(kind(&sent(&effects).1), MessageType::Discover);
            break;
        }
        match sent(&effects) {
            (SERVER, _) => to_server += 1,
            (Ipv4Addr::BROADCAST, _) => to_all += 1,
            (to, _) => panic!("request to {to}"),
        }
        assert_eq!(to_all > 0, now >= start + seconds(525));
    }
    // T1 to T2 is 225 s, halved down to the pause of 5 s; T2 to the end is 75 s.
    assert!((3..=8).contains(&to_server) && (3..=7).contains(&to_all), "{to_server} {to_all}");
}

#[test]
fn a_nak_while_renewing_loses_the_address_at_once() {
    let start = Instant::now();
    let mut client = bound(start);
    let now = client.wake();
    let (_, request) = sent(&client.step(Input::Time, now));
    let effects = reply(&mut client, &request, MessageType::Nak, now);
    assert_eq!(effects[0], Effect::Lost("the server took the lease back"));
    assert_eq!(kind(&sent(&effects).1), MessageType::Discover);
}

#[test]
fn a_proxy_offer_without_an_address_is_passed_over() {
    let now = Instant::now();
    let mut client = Client::new(MAC, 7, now);
    let (_, discover) = sent(&client.step(Input::Time, now));
    let mut proxy = answer(&discover, MessageType::Offer);
    proxy.set_yiaddr(Ipv4Addr::UNSPECIFIED);
    assert!(client.step(Input::Datagram(&encode(&proxy)), now).is_empty());
    let (_, request) = sent(&reply(&mut client, &discover, MessageType::Offer, now));
    assert_eq!(kind(&request), MessageType::Request);
}

#[test]
fn an_ack_of_another_server_is_passed_over() {
    let now = Instant::now();
    let mut client = Client::new(MAC, 7, now);
    let (_, discover) = sent(&client.step(Input::Time, now));
    let (_, request) = sent(&reply(&mut client, &discover, MessageType::Offer, now));
    let mut other = answer(&request, MessageType::Ack);
    other.opts_mut().insert(DhcpOption::ServerIdentifier(Ipv4Addr::new(10, 0, 0, 2)));
    assert!(client.step(Input::Datagram(&encode(&other)), now).is_empty());
}

#[test]
fn what_is_no_answer_to_us_is_named() {
    let discover =
        Message::new_with_id(5, [0; 4].into(), [0; 4].into(), [0; 4].into(), [0; 4].into(), &MAC.0);
    let good = answer(&discover, MessageType::Ack);
    assert_eq!(parse(&encode(&good), 5, MAC), Ok(Reply::Ack(expected_lease())));

    let changed = |change: &dyn Fn(&mut Message)| {
        let mut message = good.clone();
        change(&mut message);
        parse(&encode(&message), 5, MAC)
    };
    let option = |option: DhcpOption| changed(&move |m| drop(m.opts_mut().insert(option.clone())));
    assert_eq!(
        changed(&|m| {
            m.set_opcode(Opcode::BootRequest);
        }),
        Err(ReplyError::NotAReply)
    );
    assert_eq!(
        changed(&|m| {
            m.set_xid(6);
        }),
        Err(ReplyError::OtherTransaction)
    );
    assert_eq!(
        changed(&|m| {
            m.set_chaddr(&[2; 6]);
        }),
        Err(ReplyError::OtherClient)
    );
    assert_eq!(changed(&|m| drop(m.opts_mut().remove(OptionCode::MessageType))), Err(ReplyError::NoType));
    assert_eq!(option(DhcpOption::MessageType(MessageType::Discover)), Err(ReplyError::NoType));
    assert_eq!(
        changed(&|m| drop(m.opts_mut().remove(OptionCode::ServerIdentifier))),
        Err(ReplyError::NoServer)
    );
    let group = Ipv4Addr::new(224, 0, 0, 1);
    assert_eq!(
        changed(&|m| {
            m.set_yiaddr(group);
        }),
        Err(ReplyError::NoAddress(group))
    );
    for mask in [Ipv4Addr::new(255, 0, 255, 0), Ipv4Addr::UNSPECIFIED] {
        assert_eq!(option(DhcpOption::SubnetMask(mask)), Err(ReplyError::BadMask(mask)));
    }

    let mut bytes = encode(&good);
    bytes[2] = 255; // hlen
    assert_eq!(parse(&bytes, 5, MAC), Err(ReplyError::OtherClient));
    bytes[236] = 0; // magic cookie
    assert_eq!(parse(&bytes, 5, MAC), Err(ReplyError::Undecodable));
}

#[test]
fn cut_and_flipped_messages_are_refused_or_read_but_never_crash() {
    let discover =
        Message::new_with_id(5, [0; 4].into(), [0; 4].into(), [0; 4].into(), [0; 4].into(), &MAC.0);
    let good = encode(&answer(&discover, MessageType::Offer));
    for length in 0..good.len() {
        let _ = parse(&good[..length], 5, MAC);
    }
    for at in 0..good.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = value;
            let _ = parse(&bytes, 5, MAC);
        }
    }
}

/// dhcproto 0.14 panics on this option, which any host may send.
#[test]
fn a_malformed_option_that_nobody_asked_for_costs_nothing() {
    let now = Instant::now();
    let (_, discover) = sent(&Client::new(MAC, 7, now).step(Input::Time, now));
    let mut offer = encode(&answer(&discover, MessageType::Offer));
    assert_eq!(offer.pop(), Some(255));
    offer.extend([81, 2, 0, 0, 255]);
    assert_eq!(parse(&offer, discover.xid(), MAC), Ok(Reply::Offer(expected_lease())));
}

#[test]
fn times_out_of_order_are_those_of_the_standard() {
    let discover =
        Message::new_with_id(5, [0; 4].into(), [0; 4].into(), [0; 4].into(), [0; 4].into(), &MAC.0);
    let lease = |lease_s: u32, t1: u32, t2: u32| {
        let mut message = answer(&discover, MessageType::Ack);
        for option in
            [DhcpOption::AddressLeaseTime(lease_s), DhcpOption::Renewal(t1), DhcpOption::Rebinding(t2)]
        {
            message.opts_mut().insert(option);
        }
        let Ok(Reply::Ack(lease)) = parse(&encode(&message), 5, MAC) else { panic!("an ack") };
        (lease.holds.as_secs(), lease.renew_after.as_secs(), lease.rebind_after.as_secs())
    };
    assert_eq!(lease(600, 100, 200), (600, 100, 200));
    assert_eq!(lease(600, 500, 200), (600, 300, 525));
    assert_eq!(lease(600, 100, 700), (600, 300, 525));
    assert_eq!(lease(0, 0, 0), (30, 15, 26));
    assert_eq!(lease(u32::MAX, 0, 0).0, u64::from(u32::MAX));
}
