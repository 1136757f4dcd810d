//! The field reports about TFTP, with a small client on loopback.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use ironwright_pxe::{files::Files, tftp::Server};
use tokio_util::sync::CancellationToken;

/// Longest wait for a packet; only a failing test waits this long.
const DEADLINE: Duration = Duration::from_secs(20);

/// A server with some files, on its own thread.
struct Rig {
    addr: SocketAddr,
    shutdown: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Rig {
    fn start(files: &[(&str, Vec<u8>)]) -> Self {
        let files = files.iter().map(|(name, bytes)| ((*name).to_owned(), Bytes::from(bytes.clone())));
        let files = Arc::new(Files::from_bytes(files));
        let shutdown = CancellationToken::new();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn({
            let shutdown = shutdown.clone();
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let server = Server::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
                    tell.send(server.local_addr()).unwrap();
                    server.run(files, shutdown).await.unwrap();
                });
            }
        });
        Self { addr: told.recv().unwrap(), shutdown, thread: Some(thread) }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.shutdown.cancel();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A client that speaks RFC 1350 byte by byte.
struct Client(UdpSocket);

impl Client {
    fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        Self(socket)
    }

    fn send(&self, to: SocketAddr, packet: &[u8]) {
        self.0.send_to(packet, to).unwrap();
    }

    fn receive(&self) -> (Vec<u8>, SocketAddr) {
        let mut buf = [0; 4096];
        let (len, from) = self.0.recv_from(&mut buf).unwrap();
        (buf[..len].to_vec(), from)
    }

    /// Asks for a file and acknowledges block after block.
    fn get(&self, server: SocketAddr, name: &str) -> Vec<u8> {
        self.send(server, &rrq(name, &[]));
        let mut file = Vec::new();
        let mut expected = 1u16;
        loop {
            let (packet, from) = self.receive();
            assert_eq!(packet[..2], [0, 3], "{packet:?}");
            assert_eq!(packet[2..4], expected.to_be_bytes());
            file.extend_from_slice(&packet[4..]);
            self.send(from, &[&[0, 4], &packet[2..4]].concat());
            if packet.len() < 516 {
                return file;
            }
            expected = expected.wrapping_add(1);
        }
    }
}

fn rrq(name: &str, options: &[(&str, &str)]) -> Vec<u8> {
    let mut packet = [&[0, 1], name.as_bytes(), b"\0octet\0"].concat();
    for (name, value) in options {
        packet.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
    }
    packet
}

#[test]
fn t1_block_numbers_roll_over() {
    // 65,536 blocks and one byte: block 65535 is followed by 0, then by 1.
    let bytes: Vec<u8> = (0..65_536u32 * 128).flat_map(u32::to_le_bytes).chain([7]).collect();
    assert_eq!(bytes.len(), 65_536 * 512 + 1);
    let rig = Rig::start(&[("big", bytes.clone())]);
    assert!(Client::new().get(rig.addr, "big") == bytes);
}

#[test]
fn t2_a_size_probe_ends_quietly_and_the_file_follows() {
    let rig = Rig::start(&[("ipxe.efi", vec![5; 1000])]);
    let client = Client::new();
    client.send(rig.addr, &rrq("ipxe.efi", &[("tsize", "0")]));
    let (oack, transfer) = client.receive();
    assert_eq!(oack, b"\0\x06tsize\x001000\0");
    client.send(transfer, b"\0\x05\0\x08User aborted the transfer\0");
    // The same port again, as ROMs do it: the next packet is of the new transfer, none of the old one.
    assert_eq!(client.get(rig.addr, "ipxe.efi"), [5; 1000]);
}

#[test]
fn t3_a_block_larger_than_the_mtu_is_clamped() {
    let rig = Rig::start(&[("ipxe.efi", vec![5; 2000])]);
    let client = Client::new();
    client.send(rig.addr, &rrq("ipxe.efi", &[("tsize", "0"), ("blksize", "65464"), ("windowsize", "4")]));
    let (oack, transfer) = client.receive();
    assert_eq!(oack, b"\0\x06blksize\x001468\0tsize\x002000\0");
    client.send(transfer, &[0, 4, 0, 0]);
    let (first, _) = client.receive();
    assert_eq!((first.len(), &first[..4]), (4 + 1468, &[0, 3, 0, 1][..]));
    client.send(transfer, &[0, 4, 0, 1]);
    let (second, _) = client.receive();
    assert_eq!((second.len(), &second[..4]), (4 + 532, &[0, 3, 0, 2][..]));
    client.send(transfer, &[0, 4, 0, 2]);
}

#[test]
fn only_named_files_are_read_and_nothing_is_written() {
    let rig = Rig::start(&[("ipxe.efi", vec![5; 10])]);
    let client = Client::new();
    for name in ["revocations.efi", "../etc/passwd", "/etc/passwd", ""] {
        client.send(rig.addr, &rrq(name, &[]));
        assert_eq!(client.receive().0[..4], [0, 5, 0, 1], "{name}: at once, not by timeout");
    }
    client.send(rig.addr, b"\0\x02ipxe.efi\0octet\0");
    assert_eq!(client.receive().0[..4], [0, 5, 0, 2]);
    client.send(rig.addr, b"\xff\xff");
    assert_eq!(client.get(rig.addr, "//ipxe.efi"), [5; 10]);
}

#[test]
fn a_client_that_only_repeats_old_packets_is_sent_the_block_again() {
    let rig = Rig::start(&[("ipxe.efi", vec![5; 1000])]);
    let client = Client::new();
    client.send(rig.addr, &rrq("ipxe.efi", &[]));
    let (first, transfer) = client.receive();
    // More often than the server's second of patience, for as long as it takes.
    client.0.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let end = std::time::Instant::now() + DEADLINE;
    let again = loop {
        assert!(std::time::Instant::now() < end, "old packets kept the server from sending again");
        client.send(transfer, &[0, 4, 0, 0]);
        let mut buf = [0; 4096];
        if let Ok((len, _)) = client.0.recv_from(&mut buf) {
            break buf[..len].to_vec();
        }
    };
    assert_eq!(again, first);
}

/// The longest wait between packets: nothing is sent again while a test runs.
const PATIENT: &[(&str, &str)] = &[("timeout", "30")];
const PATIENT_OACK: &[u8] = b"\0\x06timeout\x0030\0";

#[test]
fn one_client_cannot_have_more_than_four_transfers() {
    let rig = Rig::start(&[("ipxe.efi", vec![5; 1000])]);
    let ask = || {
        let client = Client::new();
        client.send(rig.addr, &rrq("ipxe.efi", PATIENT));
        let (packet, transfer) = client.receive();
        (client, packet, transfer)
    };
    let running = [(); 4].map(|()| ask());
    assert!(running.iter().all(|(_, packet, _)| packet == PATIENT_OACK));

    let (fifth, refusal, from) = ask();
    assert_eq!(refusal[..4], [0, 5, 0, 0], "error 0 says: see the message");
    assert!(String::from_utf8_lossy(&refusal[4..]).starts_with("4 TFTP transfers "), "{refusal:?}");
    assert_eq!(from, rig.addr);

    // One ends, and there is room again, as soon as the server has read the ERROR.
    let (client, _, transfer) = &running[0];
    client.send(*transfer, b"\0\x05\0\0enough\0");
    let end = std::time::Instant::now() + DEADLINE;
    loop {
        assert!(std::time::Instant::now() < end, "the slot of an ended transfer is not given back");
        fifth.send(rig.addr, &rrq("ipxe.efi", PATIENT));
        if fifth.receive().0 == PATIENT_OACK {
            break;
        }
    }
}

#[test]
fn a_request_sent_again_replaces_its_transfer() {
    let rig = Rig::start(&[("ipxe.efi", vec![5; 1000])]);
    let client = Client::new();
    // More often than a client may have transfers: there is one at a time.
    let mut last = None;
    for _ in 0..10 {
        client.send(rig.addr, &rrq("ipxe.efi", PATIENT));
        let (packet, transfer) = client.receive();
        assert_eq!(packet, PATIENT_OACK);
        last = Some(transfer);
    }
    // A request that is refused leaves the last one alone, which goes on to its end.
    client.send(rig.addr, &rrq("no.efi", &[]));
    assert_eq!(client.receive().0[..4], [0, 5, 0, 1]);
    let last = last.unwrap();
    for (ack, len) in [(0, 512), (1, 488)] {
        client.send(last, &[0, 4, 0, ack]);
        let (packet, from) = client.receive();
        assert_eq!((packet.len(), &packet[..4], from), (4 + len, &[0, 3, 0, ack + 1][..], last));
    }
}
