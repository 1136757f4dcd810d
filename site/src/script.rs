//! The script of a ramdisk boot: boot parameters and the site's signed assertion, on a kernel command line.

use ironwright_proto::{
    Message,
    boot_params::{BootParams, BootParamsError},
    envelope::{SITE_ASSERTION, pre_auth_encoding},
    ids::{Digest, Mac, Name},
    kinds::Role,
    wire::{Envelope, SiteAssertion},
};
use ironwright_pxe::ipxe::{self, RamdiskBoot, ScriptError};

use crate::{authority::Signer, table::Ramdisk};

/// What the operator's words may override.
///
/// `quiet`: the kernel would print its command line, with the join token in it, on consoles that others may
/// watch, and a serial console is slow besides. `panic`, `softlockup_panic`: a kernel that cannot go on
/// reboots, so that the machine tries again by itself. `TSS2_LOG` becomes a part of PID 1's environment: libtss2
/// writes to the console by itself, and what fails is said with its context anyway.
const DEFAULT_WORDS: &str = "quiet panic=10 softlockup_panic=1 TSS2_LOG=all+NONE";

/// How long an assertion is good for: as long as a run waits for the ramdisk to join.
const ASSERTION_MS: i64 = 60 * 60 * 1000;

/// Why a script cannot be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BuildError {
    /// The node key.
    #[error("cannot sign the site assertion: {0:#}")]
    Sign(anyhow::Error),
    /// Too long for a kernel.
    #[error("boot parameters")]
    Params(#[from] BootParamsError),
    /// Words of the operator that iPXE would run.
    #[error("iPXE script")]
    Script(#[from] ScriptError),
}

/// What is the same for all machines of a site.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    pub(crate) site: Name,
    pub(crate) base_url: String,
    pub(crate) kernel: Digest,
    pub(crate) ramdisk: Digest,
    pub(crate) agent_bundle: Option<Digest>,
    pub(crate) kernel_args: String,
}

impl Served {
    /// Blobs that every machine may ask for.
    pub(crate) fn blobs(&self) -> impl Iterator<Item = &Digest> {
        [&self.kernel, &self.ramdisk].into_iter().chain(&self.agent_bundle)
    }

    /// Builds the script of one machine.
    pub(crate) fn script(
        &self,
        mac: Mac,
        entry: &Ramdisk,
        lease_epoch: u64,
        signer: &dyn Signer,
        now_ms: i64,
    ) -> Result<String, BuildError> {
        let params = BootParams {
            control_url: entry.control_url.clone(),
            ca_pin: entry.ca_pin,
            machine_id: entry.machine.to_string(),
            mac,
            token: entry.token.as_ref().map(|token| token.0.clone()),
            assertion: Some(self.assertion(mac, entry, lease_epoch, signer, now_ms)?),
            role: Role::Ramdisk,
        };
        // Ours come last: of a key that is given twice, the last one counts.
        let words = [DEFAULT_WORDS, &self.kernel_args, &entry.extra_cmdline, &params.to_command_line()?];
        let cmdline: Vec<&str> = words.into_iter().map(str::trim).filter(|w| !w.is_empty()).collect();
        Ok(ipxe::ramdisk(&RamdiskBoot {
            base_url: &self.base_url,
            kernel: self.kernel,
            ramdisk: self.ramdisk,
            cmdline: &cmdline.join(" "),
        })?)
    }

    fn assertion(
        &self,
        mac: Mac,
        entry: &Ramdisk,
        lease_epoch: u64,
        signer: &dyn Signer,
        now_ms: i64,
    ) -> Result<Envelope, BuildError> {
        let assertion = SiteAssertion {
            site: self.site.to_string(),
            lease_epoch,
            machine_id: entry.machine.to_string(),
            mac: mac.to_string(),
            issued_unix_ms: now_ms,
            expires_unix_ms: now_ms.saturating_add(ASSERTION_MS),
        };
        let payload = assertion.encode_to_vec();
        let signed = signer.sign(&pre_auth_encoding(SITE_ASSERTION, &payload));
        let (key_id, signature) = signed.map_err(BuildError::Sign)?;
        // Control knows the signer by its node id, and the command line is short: no chain.
        Ok(Envelope { payload_type: SITE_ASSERTION.to_owned(), payload, key_id, signature, chain: vec![] })
    }
}
