//! DHCP between two network namespaces: broadcast, ports and addresses as on a real cable.

use std::{
    fs::File,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    process::Command,
    sync::{Arc, Mutex, atomic::Ordering::Relaxed, mpsc},
    thread,
    time::Duration,
};

use dhcproto::v4::MessageType;
use ironwright_pxe::{
    Now, Table,
    dhcp::{Counters, Leases, Server, Sockets},
};
use nix::sched::{CloneFlags, setns};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::dhcp_wire::*;

const DEADLINE: Duration = Duration::from_secs(20);

/// Two namespaces joined by a cable whose ends are both called `eth0`.
struct Cable {
    site: String,
    machine: String,
}

impl Cable {
    fn new() -> Self {
        let name = |end: &str| format!("iw-pxe-{end}-{}", std::process::id());
        let cable = Self { site: name("s"), machine: name("m") };
        ip(&["netns", "add", &cable.site]);
        ip(&["netns", "add", &cable.machine]);
        let (site, machine) = (cable.site.as_str(), cable.machine.as_str());
        ip(&["-n", site, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", machine]);
        ip(&["-n", site, "address", "add", "10.0.0.2/24", "dev", "eth0"]);
        for namespace in [site, machine] {
            ip(&["-n", namespace, "link", "set", "eth0", "up"]);
        }
        cable
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for namespace in [&self.site, &self.machine] {
            let _ = Command::new("ip").args(["netns", "delete", namespace]).status();
        }
    }
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().unwrap();
    assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The calling thread moves into a namespace.
fn enter(namespace: &str) {
    setns(File::open(format!("/run/netns/{namespace}")).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
}

/// Serves in the namespace of the site until the token is cancelled.
fn serve(
    namespace: &str,
    saved: Arc<Mutex<String>>,
    counters: Arc<Counters>,
    ready: &mpsc::Sender<()>,
    shutdown: CancellationToken,
) {
    enter(namespace);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut table = Table { lease_until: Some(Now::read().mono + DEADLINE * 10), ..Table::default() };
        table.ramdisk.insert(MAC, i64::MAX);
        let (_keep, table) = watch::channel(Arc::new(table));
        let (unknown, _seen) = tokio::sync::mpsc::channel(1);
        let server = Server {
            sockets: Sockets::bind(Some("eth0")).unwrap(),
            config: Site::server().config,
            table,
            leases: Leases::default(),
            save: Arc::new(move |text| {
                text.clone_into(&mut saved.lock().unwrap());
                Ok(())
            }),
            unknown,
            counters,
        };
        ready.send(()).unwrap();
        server.run(shutdown).await.unwrap();
    });
}

/// Sends to everybody from an interface without an address, and waits for an answer.
fn ask(socket: &UdpSocket, packet: &[u8]) -> dhcproto::v4::Message {
    socket.send_to(packet, (Ipv4Addr::BROADCAST, 67)).unwrap();
    let mut buf = [0; 2048];
    let (len, from) = socket.recv_from(&mut buf).unwrap();
    assert_eq!(from, SocketAddr::from((SITE, 67)));
    decode(&buf[..len])
}

#[test]
fn a_machine_without_an_address_is_served_by_broadcast() {
    let cable = Cable::new();
    let saved = Arc::new(Mutex::new(String::new()));
    let counters = Arc::new(Counters::default());
    let shutdown = CancellationToken::new();
    let (ready, is_ready) = mpsc::channel();
    let server = thread::spawn({
        let (site, saved, counters, shutdown) =
            (cable.site.clone(), saved.clone(), counters.clone(), shutdown.clone());
        move || serve(&site, saved, counters, &ready, shutdown)
    });
    is_ready.recv_timeout(DEADLINE).unwrap();

    let machine = thread::spawn({
        let namespace = cable.machine.clone();
        move || {
            enter(&namespace);
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).unwrap();
            socket.set_broadcast(true).unwrap();
            socket.set_read_timeout(Some(DEADLINE)).unwrap();
            socket.bind_device(Some(b"eth0")).unwrap();
            socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 68)).into()).unwrap();

            let socket = UdpSocket::from(socket);
            socket.send_to(b"noise", (Ipv4Addr::BROADCAST, 67)).unwrap();
            let offer = ask(&socket, &firmware(DISCOVER, 0));
            assert_eq!(boot_file(&offer).as_deref(), Some("undionly.kpxe"));
            let (wish, server) = (offer.yiaddr().octets(), SITE.octets());
            ask(&socket, &request(REQUEST, &[(50, &wish), (54, &server)]))
        }
    });
    let ack = machine.join().unwrap();
    assert_eq!((ack.opts().msg_type(), ack.yiaddr()), (Some(MessageType::Ack), FIRST));
    assert!(saved.lock().unwrap().starts_with("52:54:00:12:34:56 10.0.0.100 "), "stored before the ACK");
    shutdown.cancel();
    server.join().unwrap();
    let counts = [&counters.received, &counters.replied, &counters.malformed, &counters.failed];
    assert_eq!(counts.map(|count| count.load(Relaxed)), [3, 2, 1, 0]);
}
