//! A control plane in memory with a site, a machine and an image, as the control targets begin.

use ironwright_control_core::{
    Control, Output, Settings,
    images::ImageFacts,
    session::{Opened, Peer},
    store::MemStore,
};
use ironwright_proto::{
    Message,
    api::{DiskHint, NewDeploy, NewImage, NewMachine, NewSite},
    envelope::{self, pre_auth_encoding},
    ids::{Digest, Mac},
    kinds,
    wire::{BootPrepareArgs, Envelope, Hello, JoinClaim, SiteAssertion, TokenJoin, gateway_frame::Frame},
};
use p256::{
    ecdsa::{Signature, SigningKey, signature::Signer},
    pkcs8::EncodePublicKey,
};
use rand::{SeedableRng, rngs::StdRng};

use crate::soft_tpm;

/// The machine's interface.
pub const MAC: Mac = Mac([0x52, 0x54, 0, 0x12, 0x34, 0x56]);

/// Control, and what a target needs to talk to it.
pub struct World {
    /// Control itself.
    pub control: Control<MemStore>,
    /// Seeded alike in every run.
    pub rng: StdRng,
    /// Milliseconds since the Unix epoch.
    pub now_ms: i64,
    /// The site's agent.
    pub site: Peer,
    /// Epoch of the site's session.
    pub epoch: u64,
    /// The run's id.
    pub run: String,
    /// The machine's join token, as the site serves it.
    pub token: String,
    /// Ids of the commands that control has sent so far.
    pub commands: Vec<String>,
}

impl World {
    /// A site with an open session, and a deploy that waits for the machine to join.
    ///
    /// # Panics
    /// Where control refuses what is right.
    #[must_use]
    pub fn new() -> Self {
        let settings = Settings {
            control_url: "https://10.0.0.1:8443".into(),
            ca_pin: Digest([9; 32]),
            gateway: "control".into(),
            ek_roots_pem: soft_tpm::maker_pem(),
        };
        let (mut rng, now_ms) = (StdRng::seed_from_u64(7), soft_tpm::NOW_S * 1000);
        let mut control = Control::new(MemStore::new(), settings, now_ms).expect("an empty store");
        enrol(&mut control, now_ms);
        let site = join_site(&mut control, now_ms, &mut rng);
        let hello = Hello {
            version: 1,
            role: "site".into(),
            boot_id: "boot".into(),
            journal_id: "journal".into(),
            site: "lab".into(),
            address: "http://10.0.0.2:8080".into(),
            observed_generation: 0,
            ..Hello::default()
        };
        let opened = control.session_open(&site, &hello, now_ms, &mut rng).expect("a store that works");
        let Opened::Welcome { epoch, .. } = opened else { panic!("{opened:?}") };
        let deploy = NewDeploy {
            machine: "web-1".parse().expect("a name"),
            image: "debian".parse().expect("a name"),
            user_data: None,
            disk: DiskHint::default(),
            extra_cmdline: String::new(),
            replace: false,
        };
        let (run, output) = control.start_deploy("alice", &deploy, now_ms, &mut rng).expect("a deploy");
        let mut world = Self {
            control,
            rng,
            now_ms,
            site,
            epoch,
            run: run.id,
            token: String::new(),
            commands: Vec::new(),
        };
        world.take(&output);
        assert!(!world.token.is_empty(), "the site was not asked to prepare the boot");
        world
    }

    /// Takes note of the commands in an output.
    pub fn take(&mut self, output: &Output) {
        for (_, frame) in &output.frames {
            let Some(Frame::Command(command)) = &frame.frame else { continue };
            self.commands.push(command.id.clone());
            if let (kinds::BOOT_PREPARE, Ok(args)) =
                (command.kind.as_str(), BootPrepareArgs::decode(command.args.as_slice()))
            {
                self.token = args.join_token;
            }
        }
    }

    /// What the site says of the machine that it boots.
    #[must_use]
    pub fn assertion(&self) -> SiteAssertion {
        SiteAssertion {
            site: "lab".into(),
            lease_epoch: 1,
            machine_id: "web-1".into(),
            mac: MAC.to_string(),
            issued_unix_ms: self.now_ms,
            expires_unix_ms: self.now_ms + 60_000,
        }
    }

    /// Signs a payload as the site.
    #[must_use]
    pub fn signed_by_site(&self, payload: Vec<u8>) -> Envelope {
        let signature: Signature = site_key().sign(&pre_auth_encoding(envelope::SITE_ASSERTION, &payload));
        Envelope {
            payload_type: envelope::SITE_ASSERTION.into(),
            payload,
            key_id: self.site.node_id.clone(),
            signature: signature.to_der().as_bytes().to_vec(),
            chain: vec![],
        }
    }

    /// What the machine's ramdisk honestly claims.
    #[must_use]
    pub fn claim(&self) -> JoinClaim {
        JoinClaim {
            machine_id: "web-1".into(),
            role: "ramdisk".into(),
            join_token: self.token.clone(),
            mac: MAC.to_string(),
            site_assertion: Some(self.signed_by_site(self.assertion().encode_to_vec())),
            ..JoinClaim::default()
        }
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

fn site_key() -> SigningKey {
    soft_tpm::maker()
}

fn enrol(control: &mut Control<MemStore>, now_ms: i64) {
    let machine = NewMachine {
        id: "web-1".parse().expect("a name"),
        mac: MAC,
        product_uuid: None,
        site: None,
        allow_no_tpm: true,
    };
    let image = NewImage {
        name: "debian".parse().expect("a name"),
        url: "https://x.example/d.zst".into(),
        digest: None,
    };
    let facts = ImageFacts {
        digest: Digest([1; 32]),
        size_bytes: 1 << 20,
        raw_size_bytes: 4 << 30,
        format: "zstd".into(),
    };
    control.register_image("alice", &image, now_ms).expect("an image");
    control.image_fetched(&image.name, &facts, now_ms).expect("an image");
    control
        .create_site(
            "alice",
            &NewSite { name: "lab".parse().expect("a name") },
            now_ms,
            &mut StdRng::seed_from_u64(1),
        )
        .expect("a site");
    control.create_machine("alice", &machine, now_ms).expect("a machine");
}

fn join_site(control: &mut Control<MemStore>, now_ms: i64, rng: &mut StdRng) -> Peer {
    let lab = NewSite { name: "lab".parse().expect("a name") };
    let created = control.create_site("alice", &lab, now_ms, rng).expect("a token");
    let key = site_key();
    let spki_der = key.verifying_key().to_public_key_der().expect("a public key").into_vec();
    // CertificationRequestInfo: version 0, no subject, the key, no attributes (RFC 2986 section 4.1).
    let content = [&[0x02, 0x01, 0x00, 0x30, 0x00][..], &spki_der, &[0xa0, 0x00]].concat();
    let info = [&[0x30, u8::try_from(content.len()).expect("short")][..], &content].concat();
    let claim = JoinClaim { role: "site".into(), join_token: created.join_token, ..JoinClaim::default() };
    let join = TokenJoin { version: 1, csr_der: crate::der::signed(&info, &key), claim: Some(claim) };
    let grant = control.join_with_token("10.0.0.2", &join, now_ms, rng).expect("a site that may join");
    Peer { node_id: grant.node_id, spki_der }
}
