//! The NoCloud seed of a deployed system: what cloud-init (or our own small systems) find on the partition `CIDATA`.
//!
//! | file | content |
//! |---|---|
//! | `meta-data` | instance id = run id, host name = machine id |
//! | `user-data` | the operator's, untouched |
//! | `vendor-data` | a script that installs the agent from the site, by digest |
//! | `agent.toml` | the agent's configuration, for systems that bring the agent along |
//!
//! vendor-data is a script rather than cloud-config: where both have `runcmd` or `write_files`, cloud-init takes the
//! user-data's and drops the vendor-data's, so an operator's `runcmd` would keep the agent from being installed.
//! JSON is valid YAML and its strings are valid Python and TOML ones, which makes all quoting the same.

use std::fmt::Write;

use ironwright_proto::ids::{Digest, Mac, Name};
use serde_json::{Value, json};

const INSTALLER: &str = include_str!("install_agent.py");
/// Where the installer takes its settings.
const SETUP_MARK: &str = "@SETUP@";
const UNIT: &str = include_str!("ironwright-agent.service");
const NO_CONFIG: &str = "#cloud-config\n{}\n";

/// What a seed is made from.
#[derive(Clone, Copy)]
pub struct Seed<'a> {
    /// Run that deploys the system.
    pub run_id: &'a str,
    /// Machine.
    pub machine_id: &'a Name,
    /// The interface that control knows the machine by.
    pub mac: Mac,
    /// Base URL of control's API.
    pub control_url: &'a str,
    /// Pin of control's CA certificate.
    pub ca_pin: Digest,
    /// For a machine without a TPM.
    pub join_token: Option<&'a str>,
    /// The operator's user-data.
    pub user_data: Option<&'a str>,
    /// Base URL of the site's boot HTTP.
    pub site_url: &'a str,
    /// The agent bundle that the site serves; without one no agent is installed.
    pub agent_bundle: Option<Digest>,
}

/// The files of a seed.
pub fn files(seed: &Seed<'_>) -> Vec<(&'static str, Vec<u8>)> {
    let meta_data = json!({"instance-id": seed.run_id, "local-hostname": seed.machine_id});
    let agent_toml = agent_toml(seed);
    vec![
        ("meta-data", format!("{meta_data}\n").into_bytes()),
        ("user-data", seed.user_data.unwrap_or(NO_CONFIG).as_bytes().to_vec()),
        ("vendor-data", vendor_data(seed, &agent_toml).into_bytes()),
        ("agent.toml", agent_toml.into_bytes()),
    ]
}

/// A string literal of JSON, TOML and Python alike.
fn quoted(text: &str) -> String {
    // TOML alone wants DEL escaped.
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

fn agent_toml(seed: &Seed<'_>) -> String {
    let mut text = String::new();
    let mut line = |key: &str, value: &str| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{key} = {}", quoted(value));
    };
    line("control_url", seed.control_url);
    line("ca_pin", &seed.ca_pin.to_string());
    line("machine_id", seed.machine_id.as_str());
    line("mac", &seed.mac.to_string());
    line("role", "node");
    if let Some(token) = seed.join_token {
        line("join_token", token);
    }
    text
}

fn vendor_data(seed: &Seed<'_>, agent_toml: &str) -> String {
    let Some(bundle) = seed.agent_bundle else { return NO_CONFIG.to_owned() };
    let setup = json!({
        "agent_toml": agent_toml,
        "bundle_url": format!("{}/blobs/sha256/{}", seed.site_url, bundle.hex()),
        "bundle_sha256": bundle.hex(),
        "unit": UNIT,
    });
    INSTALLER.replace(SETUP_MARK, &quoted(&setup.to_string()))
}

#[cfg(test)]
mod tests;
