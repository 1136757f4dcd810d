//! Which crate may use which: the rooms of the house, as a table.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use cargo_metadata::MetadataCommand;

use crate::cargo;

/// A crate, its layer, and the crates of lower layers that it may use.
struct Room {
    name: &'static str,
    layer: u8,
    may_use: &'static [&'static str],
}

const fn room(name: &'static str, layer: u8, may_use: &'static [&'static str]) -> Room {
    Room { name, layer, may_use }
}

const PROTO: &str = "ironwright-proto";
const AGENT_CORE: &str = "ironwright-agent-core";
const CONTROL_CORE: &str = "ironwright-control-core";
const TPM: &str = "ironwright-tpm";
const IMAGES: &str = "ironwright-images";
const PXE: &str = "ironwright-pxe";
const AGENT: &str = "ironwright-agent";
const RAMDISK: &str = "ironwright-ramdisk";
const SITE: &str = "ironwright-site";
const CONTROL: &str = "ironwright-control";
const SIM: &str = "ironwright-sim";
const BENCH: &str = "ironwright-bench";
const CLI: &str = "ironwright";
const QEMU_TESTS: &str = "ironwright-qemu-tests";
const XTASK: &str = "xtask";

/// Every crate of the workspace. An edge that is not here is refused.
const ROOMS: &[Room] = &[
    room(PROTO, 0, &[]),
    room(TPM, 1, &[PROTO]),
    room(IMAGES, 1, &[]),
    room(PXE, 1, &[PROTO]),
    room(AGENT_CORE, 1, &[PROTO]),
    // A sideways arrow: join policy needs the checks of `verify`.
    room(CONTROL_CORE, 1, &[PROTO, TPM]),
    room(AGENT, 2, &[PROTO, TPM, AGENT_CORE]),
    room(RAMDISK, 3, &[PROTO, TPM, IMAGES, AGENT]),
    room(SITE, 3, &[PROTO, IMAGES, PXE, AGENT]),
    // Images, because control tells an image's format and size while it takes it in.
    room(CONTROL, 3, &[PROTO, TPM, IMAGES, CONTROL_CORE]),
    room(SIM, 4, &[PROTO, AGENT_CORE, CONTROL_CORE]),
    room(BENCH, 4, &[PROTO, AGENT, CONTROL]),
    // The simulator, because there is one program.
    room(CLI, 4, &[PROTO, IMAGES, AGENT, SITE, CONTROL, SIM]),
    // Drives built programs only.
    room(QEMU_TESTS, 4, &[]),
    room(XTASK, 5, &[QEMU_TESTS]),
];

/// Rooms that only decide: bytes, state and time in, effects out.
const PURE: &[&str] = &[PROTO, AGENT_CORE, CONTROL_CORE, SIM];
/// What a room that only decides has no use for.
const IMPURE: &[&str] = &["tokio", "hyper", "axum", "nix", "socket2", "redb", "rtnetlink", "smol"];

/// Checks the workspace's dependencies, those of tests too.
pub(crate) fn check() -> Result<()> {
    let metadata = MetadataCommand::new()
        .current_dir(cargo::workspace())
        .no_deps()
        .exec()
        .context("reading the workspace's metadata")?;
    let edges: Vec<(String, Vec<String>)> = metadata
        .workspace_packages()
        .iter()
        .map(|package| {
            let uses: BTreeSet<_> = package.dependencies.iter().map(|used| used.name.clone()).collect();
            (package.name.to_string(), uses.into_iter().collect())
        })
        .collect();
    let faults = faults(&edges);
    if !faults.is_empty() {
        bail!("arrows that must not be (xtask/src/arrows.rs):\n  {}", faults.join("\n  "));
    }
    println!("arrows: {} crates use only what they may", edges.len());
    Ok(())
}

/// What is wrong with the dependencies of each crate.
fn faults(edges: &[(String, Vec<String>)]) -> Vec<String> {
    let is_room = |name: &str| ROOMS.iter().any(|room| room.name == name);
    let mut faults = Vec::new();
    for (name, uses) in edges {
        let Some(room) = ROOMS.iter().find(|room| room.name == name) else {
            faults.push(format!("{name} has no room"));
            continue;
        };
        for used in uses.iter().map(String::as_str) {
            if is_room(used) && !room.may_use.contains(&used) {
                faults.push(format!("{name} (layer {}) uses {used}", room.layer));
            }
            if PURE.contains(&room.name) && IMPURE.contains(&used) {
                faults.push(format!("{name} only decides, yet it uses {used}"));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_one(name: &str, uses: &[&str]) -> Vec<String> {
        faults(&[(name.to_owned(), uses.iter().map(|used| (*used).to_owned()).collect())])
    }

    #[test]
    fn arrows_in_the_table_point_down() {
        for room in ROOMS {
            for used in room.may_use {
                let below = ROOMS.iter().find(|other| other.name == *used).unwrap();
                let sideways = [(CONTROL_CORE, TPM), (CLI, SIM)].contains(&(room.name, used));
                assert!(below.layer < room.layer || sideways, "{} uses {used}", room.name);
            }
        }
    }

    #[test]
    fn an_arrow_that_is_not_in_the_table_is_a_fault() {
        assert_eq!(check_one(PXE, &[PROTO, "tokio"]), [""; 0]);
        assert_eq!(check_one(PXE, &[IMAGES]), ["ironwright-pxe (layer 1) uses ironwright-images"]);
        assert_eq!(check_one("vmm", &[]), ["vmm has no room"]);
    }

    #[test]
    fn rooms_that_decide_do_no_io() {
        let fault = "ironwright-agent-core only decides, yet it uses tokio";
        assert_eq!(check_one(AGENT_CORE, &[PROTO, "tokio"]), [fault]);
    }

    #[test]
    fn this_workspace_has_no_faults() {
        check().unwrap();
    }
}
