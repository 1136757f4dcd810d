//! From a network to an identity: control's time, then the join.

use std::time::Duration;

use ironwright_agent::{
    Identity, JoinConfig, JoinError, KeySource,
    clock::{self, SetClock},
};
use ironwright_proto::{boot_params::BootParams, ids::Mac, wire::JoinClaim};

use crate::{
    console::{chain, say},
    machine::{Dmi, Roots},
    stage::{self, Failure, GivenUp, Limits},
};

/// Asking for the time: control may be restarting, so for some minutes.
const CLOCK: Limits = Limits { attempts: 10, each: Duration::from_secs(15) };
/// Joining, with a TPM that may take seconds to make keys.
const JOIN: Limits = Limits { attempts: 8, each: Duration::from_secs(120) };
const TPM_DEVICE: &str = "tpmrm0";
/// A refusal of this code passes by itself.
const RATE_LIMITED: &str = "rate_limited";

/// Sets this machine's clock to control's.
pub async fn set_clock(params: &BootParams) -> Result<(), GivenUp> {
    stage::run("time", CLOCK, || async {
        let time =
            clock::sync(&params.control_url, params.ca_pin, SetClock::Always).await.map_err(|error| {
                let next = format!("is control running, and can this machine reach {}?", params.control_url);
                Failure::Passing(format!("{}; {next}", chain(&error)))
            })?;
        say("time", format_args!("clock set by control: {} s since 1970", time / 1000));
        Ok(())
    })
    .await
}

/// Joins as the machine that the boot parameters name.
pub async fn join(params: &BootParams, roots: &Roots) -> Result<Identity, GivenUp> {
    let config = JoinConfig {
        control_url: params.control_url.clone(),
        ca_pin: params.ca_pin,
        claim: claim(params, params.mac, &Dmi::read(roots)),
        key: key_source(roots),
    };
    let how = if matches!(config.key, KeySource::Memory) { "by token (no TPM here)" } else { "by its TPM" };
    say("join", format_args!("as {} {how}", params.machine_id));
    let identity =
        stage::run("join", JOIN, || async { Identity::join(&config).await.map_err(|error| failure(&error)) })
            .await?;
    say("join", format_args!("joined as node {}", identity.node_id()));
    Ok(identity)
}

/// The TPM behind the kernel's resource manager, where there is one.
fn key_source(roots: &Roots) -> KeySource {
    let device = roots.dev.join(TPM_DEVICE);
    if device.exists() {
        KeySource::Tpm { tcti: format!("device:{}", device.display()) }
    } else {
        KeySource::Memory
    }
}

fn claim(params: &BootParams, mac: Mac, dmi: &Dmi) -> JoinClaim {
    JoinClaim {
        machine_id: params.machine_id.clone(),
        role: params.role.as_str().to_owned(),
        join_token: params.token.clone().unwrap_or_default(),
        mac: mac.to_string(),
        product_uuid: dmi.product_uuid.clone(),
        serial: dmi.serial.clone(),
        site_assertion: params.assertion.clone(),
    }
}

/// Whether asking again is of use, and what a person can do.
fn failure(error: &JoinError) -> Failure {
    match error.refusal() {
        None | Some(RATE_LIMITED) => Failure::Passing(chain(error)),
        Some(code) => Failure::Lasting(format!("{}; {}", chain(error), advice(code))),
    }
}

/// What to do about a refusal, by the codes of decision 0001.
fn advice(code: &str) -> &'static str {
    match code {
        "unknown_machine" => "enroll it with `ironwright machines add`",
        "token_missing" | "token_unknown" | "token_used" | "token_expired" | "token_of_other_machine" => {
            "it gets a new token when it boots again during a deploy"
        }
        "ek_untrusted" => "add the CA of this TPM's maker to control's EK roots",
        "ek_mismatch" => {
            "this is another TPM than the one the machine joined with before; for a changed mainboard there is \
             `ironwright machines set … --forget-tpm`"
        }
        "tpm_required" => {
            "switch the TPM on in the firmware, or let the machine join without (`ironwright machines set --help`)"
        }
        "site_assertion_invalid" | "stale_lease" => {
            "the site that boots it must hold the lease; booting again"
        }
        _ => "control's events tell more (`ironwright events`)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &str) -> JoinError {
        JoinError::Refused { code: code.into() }
    }

    #[test]
    fn only_passing_failures_are_tried_again() {
        assert!(matches!(failure(&refused("rate_limited")), Failure::Passing(_)));
        assert!(matches!(failure(&JoinError::Interrupted), Failure::Passing(_)));
        let Failure::Lasting(text) = failure(&refused("unknown_machine")) else { panic!("lasting") };
        assert_eq!(
            text,
            "control refused the join: unknown_machine; enroll it with `ironwright machines add`"
        );
    }

    #[test]
    fn the_claim_carries_boot_parameters_and_firmware_text() {
        let line = "iw.control=https://10.0.0.1:8443 iw.machine=web-1 iw.mac=52-54-00-12-34-56 iw.token=abc \
            iw.ca=sha256:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
        let params = BootParams::parse(line).unwrap();
        let dmi = Dmi { product_uuid: "u".into(), serial: "s".into(), ..Dmi::default() };
        let expected = JoinClaim {
            machine_id: "web-1".into(),
            role: "ramdisk".into(),
            join_token: "abc".into(),
            mac: "52:54:00:12:34:56".into(),
            product_uuid: "u".into(),
            serial: "s".into(),
            site_assertion: None,
        };
        assert_eq!(claim(&params, params.mac, &dmi), expected);
    }
}
