//! A control of its own for each test: folder, ports, shutdown.

use std::{fs, net::SocketAddr, path::Path, time::Duration};

use ironwright_control::{Config, InitOptions, ServeError, Server, init};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use tempfile::TempDir;
use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use crate::client::Client;

/// Whatever is waited for in these tests comes within this time.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A running control.
pub(crate) struct Rig {
    pub(crate) dir: TempDir,
    pub(crate) api: Client,
    pub(crate) gateway_address: SocketAddr,
    shutdown: CancellationToken,
    served: JoinHandle<Result<(), ServeError>>,
}

/// What `init` is asked for in all tests: loopback, ports chosen by the system.
pub(crate) fn options() -> InitOptions {
    let loopback = Some("127.0.0.1:0".parse().unwrap());
    InitOptions {
        names: vec!["localhost".into(), "127.0.0.1".into()],
        api: loopback,
        gateway: loopback,
        ek_roots: None,
    }
}

/// These bytes as a disk: with a DOS table that has one partition.
pub(crate) fn disk(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[446..510].fill(0);
    bytes[446..462].copy_from_slice(&[0, 0, 0, 0, 0x83, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0]);
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    bytes
}

pub(crate) fn read_ca(dir: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(dir.join("ca.crt")).unwrap()
}

impl Rig {
    /// Makes and starts a control.
    pub(crate) async fn start() -> Self {
        Self::start_with(options()).await
    }

    pub(crate) async fn start_with(options: InitOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let initialised = init(&dir.path().join("control"), options).unwrap();
        Self::serve(dir, initialised.admin_token.to_string()).await
    }

    /// With an image folder: `images`, beside control's.
    pub(crate) async fn start_with_image_folder() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [control, images] = ["control", "images"].map(|name| dir.path().join(name));
        let initialised = init(&control, options()).unwrap();
        fs::create_dir(&images).unwrap();
        let config = control.join("control.toml");
        let text = fs::read_to_string(&config).unwrap();
        fs::write(&config, format!("image_folder = '{}'\n{text}", images.display())).unwrap();
        Self::serve(dir, initialised.admin_token.to_string()).await
    }

    async fn serve(dir: TempDir, token: String) -> Self {
        let folder = dir.path().join("control");
        let server = Server::bind(&Config::load(&folder).unwrap()).await.unwrap();
        let api = Client::new(server.api_address(), read_ca(&folder), token);
        let gateway_address = server.gateway_address();
        let shutdown = CancellationToken::new();
        let served = tokio::spawn(server.run(shutdown.clone()));
        Self { dir, api, gateway_address, shutdown, served }
    }

    /// Ends control cleanly and gives what is left of it.
    pub(crate) async fn stop(self) -> (TempDir, String) {
        self.shutdown.cancel();
        timeout(DEADLINE, self.served).await.expect("control ends").unwrap().unwrap();
        (self.dir, self.api.token)
    }

    /// Ends control cleanly and starts it again, on other ports.
    pub(crate) async fn restart(self) -> Self {
        let (dir, token) = self.stop().await;
        Self::serve(dir, token).await
    }

    pub(crate) fn ca(&self) -> CertificateDer<'static> {
        read_ca(&self.dir.path().join("control"))
    }
}
