//! Boot parameters: what a site tells the ramdisk on the kernel command line.
//!
//! ```text
//! iw.control=https://10.0.0.1:8443   control's API and join service
//! iw.ca=sha256:…                     pin: SHA-256 of control's CA certificate (DER)
//! iw.machine=web-1                   the machine that the site takes this one for
//! iw.mac=52:54:00:12:34:56           the interface that booted
//! iw.token=…                         one-use join token (absent once it was served)
//! iw.assertion=…                     base64url of the site's signed Envelope
//! iw.role=node                       only in images of our own; "ramdisk" where absent
//! ```
//! Unknown `iw.` keys are ignored, so that a newer site can boot an older ramdisk; everything else on the
//! line is the kernel's or the operator's.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use prost::Message;

use crate::{
    ids::{Digest, Mac},
    kinds::Role,
    wire::Envelope,
};

/// The x86 kernel cuts its command line at this length (COMMAND_LINE_SIZE).
pub const MAX_COMMAND_LINE: usize = 2048;
const MAX_TOKEN: usize = 128;

/// Checked boot parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct BootParams {
    /// Base URL of control's API and join service.
    pub control_url: String,
    /// Pin of control's CA certificate.
    pub ca_pin: Digest,
    /// Machine id.
    pub machine_id: String,
    /// The interface that booted.
    pub mac: Mac,
    /// One-use join token.
    pub token: Option<String>,
    /// The site's signed assertion.
    pub assertion: Option<Envelope>,
    /// Role of the agent that is started.
    pub role: Role,
}

/// Why the command line cannot be used. Every variant names the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BootParamsError {
    /// A parameter that has to be there.
    #[error("the kernel command line has no `{0}`; was this ramdisk booted by an Ironwright site?")]
    Missing(&'static str),
    /// A parameter that is there, but wrong.
    #[error("boot parameter `{key}` is malformed: {why}")]
    Malformed {
        /// The parameter's key.
        key: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Would be cut by the kernel.
    #[error("the command line has {0} bytes; the kernel takes at most {MAX_COMMAND_LINE}")]
    TooLong(usize),
}

impl BootParams {
    /// Reads a kernel command line, as in `/proc/cmdline`. Where a key is given twice the last one counts,
    /// as the kernel does it.
    pub fn parse(line: &str) -> Result<Self, BootParamsError> {
        if line.len() > MAX_COMMAND_LINE {
            return Err(BootParamsError::TooLong(line.len()));
        }
        let find = |key: &'static str| {
            line.split_ascii_whitespace()
                .filter_map(|word| word.strip_prefix(key)?.strip_prefix('='))
                .next_back()
                .filter(|value| !value.is_empty())
        };
        let need = |key: &'static str| find(key).ok_or(BootParamsError::Missing(key));
        let malformed =
            |key, why: &dyn std::fmt::Display| BootParamsError::Malformed { key, why: why.to_string() };

        let control_url = need("iw.control")?;
        if !control_url.starts_with("https://") || control_url.ends_with('/') {
            return Err(malformed("iw.control", &"expected https://host:port without a path"));
        }
        let token = find("iw.token");
        if token.is_some_and(|t| t.len() > MAX_TOKEN || !t.bytes().all(|b| b.is_ascii_graphic())) {
            return Err(malformed("iw.token", &"expected at most 128 printable characters"));
        }
        let assertion = find("iw.assertion").map(decode_assertion).transpose()?;
        let role = find("iw.role").unwrap_or("ramdisk");
        Ok(Self {
            control_url: control_url.to_owned(),
            ca_pin: need("iw.ca")?.parse().map_err(|e| malformed("iw.ca", &e))?,
            machine_id: need("iw.machine")?.chars().take(63).collect(),
            mac: need("iw.mac")?.parse().map_err(|e| malformed("iw.mac", &e))?,
            token: token.map(str::to_owned),
            assertion,
            role: Role::from_wire(role).ok_or_else(|| malformed("iw.role", &"unknown role"))?,
        })
    }

    /// Writes the parameters for a command line, without a trailing space.
    pub fn to_command_line(&self) -> Result<String, BootParamsError> {
        let mut line = format!(
            "iw.control={} iw.ca={} iw.machine={} iw.mac={}",
            self.control_url, self.ca_pin, self.machine_id, self.mac
        );
        let mut push = |key: &str, value: &str| {
            line.push_str(key);
            line.push_str(value);
        };
        if let Some(token) = &self.token {
            push(" iw.token=", token);
        }
        if let Some(assertion) = &self.assertion {
            push(" iw.assertion=", &URL_SAFE_NO_PAD.encode(assertion.encode_to_vec()));
        }
        if self.role != Role::Ramdisk {
            push(" iw.role=", self.role.as_str());
        }
        if line.len() > MAX_COMMAND_LINE { Err(BootParamsError::TooLong(line.len())) } else { Ok(line) }
    }
}

fn decode_assertion(text: &str) -> Result<Envelope, BootParamsError> {
    let bad = |why: &str| BootParamsError::Malformed { key: "iw.assertion", why: why.to_owned() };
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| bad("not base64url without padding"))?;
    Envelope::decode(bytes.as_slice()).map_err(|_| bad("not an envelope"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: &str = "console=ttyS0 iw.control=https://10.0.0.1:8443 \
        iw.ca=sha256:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f \
        iw.machine=web-1 iw.mac=52:54:00:12:34:56 iw.token=abc quiet iw.future=1";

    #[test]
    fn a_site_line_is_read() {
        let params = BootParams::parse(LINE).unwrap();
        assert_eq!(params.control_url, "https://10.0.0.1:8443");
        assert_eq!(params.ca_pin.0, std::array::from_fn(|i| u8::try_from(i).unwrap()));
        assert_eq!(params.mac, Mac([0x52, 0x54, 0, 0x12, 0x34, 0x56]));
        assert_eq!(params.token.as_deref(), Some("abc"));
        assert_eq!(params.role, Role::Ramdisk);
    }

    #[test]
    fn each_missing_or_malformed_parameter_is_named() {
        for key in ["iw.control", "iw.ca", "iw.machine", "iw.mac"] {
            let without = LINE.replace(&format!("{key}="), "iw.other=");
            assert_eq!(BootParams::parse(&without), Err(BootParamsError::Missing(key)));
        }
        for (from, to, key) in [
            ("https://", "http://", "iw.control"),
            ("sha256:00", "sha256:zz", "iw.ca"),
            ("52:54", "52:5", "iw.mac"),
            ("iw.future=1", "iw.role=king", "iw.role"),
            ("iw.future=1", "iw.assertion=%%", "iw.assertion"),
        ] {
            let err = BootParams::parse(&LINE.replace(from, to)).unwrap_err();
            assert!(matches!(err, BootParamsError::Malformed { key: k, .. } if k == key), "{err}");
        }
        let long = format!("{LINE} {}", "x".repeat(MAX_COMMAND_LINE));
        assert!(matches!(BootParams::parse(&long), Err(BootParamsError::TooLong(_))));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,300}") {
            let _ = BootParams::parse(&text);
        }

        #[test]
        fn what_is_written_is_read_back(
            pin: [u8; 32], low in any::<[u8; 5]>(), token in proptest::option::of("[A-Za-z0-9_-]{1,64}"),
            payload: Vec<u8>, node: bool,
        ) {
            let mut mac = [0x52; 6];
            mac[1..].copy_from_slice(&low);
            let params = BootParams {
                control_url: "https://[fd00::1]:8443".into(),
                ca_pin: Digest(pin),
                machine_id: "m-1".into(),
                mac: Mac(mac),
                token,
                assertion: Some(Envelope { payload, key_id: "s".into(), ..Envelope::default() }),
                role: if node { Role::Node } else { Role::Ramdisk },
            };
            prop_assert_eq!(BootParams::parse(&params.to_command_line().unwrap()), Ok(params));
        }
    }
}
