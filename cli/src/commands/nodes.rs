//! `ironwright nodes`.

use ironwright_proto::api::{Node, NodeState};

use crate::{args::NodesCommand, client::Client, output};

pub(super) async fn run(client: &Client, command: NodesCommand, json: bool) -> anyhow::Result<()> {
    match command {
        NodesCommand::List => {
            let nodes: Vec<Node> = client.get("/v1/nodes").await?;
            if json {
                return output::json(&nodes);
            }
            let rows: Vec<_> = nodes
                .into_iter()
                .map(|n| {
                    let what = n.machine.or(n.site);
                    vec![
                        n.id,
                        output::or_dash(what),
                        n.role,
                        state(n.state).to_owned(),
                        link(n.connected),
                        n.proof,
                    ]
                })
                .collect();
            output::text(&output::table(&["NODE", "OF", "ROLE", "STATE", "LINK", "PROOF"], &rows))?;
        }
        NodesCommand::Show { node } => {
            let node: Node = client.get(&format!("/v1/nodes/{node}")).await?;
            if json {
                return output::json(&node);
            }
            output::text(&output::fields(&[
                ("node", node.id),
                ("machine", output::or_dash(node.machine)),
                ("site", output::or_dash(node.site)),
                ("role", node.role),
                ("state", state(node.state).to_owned()),
                ("link", link(node.connected)),
                ("session epoch", node.session_epoch.to_string()),
                ("boot id", output::or_dash(node.boot_id)),
                ("agent", output::or_dash(node.agent_version)),
                ("proof", node.proof),
                ("EK", output::or_dash(node.ek_fingerprint)),
                ("joined", output::time(node.joined_ms)),
                ("state since", output::time(node.changed_ms)),
            ]))?;
            for (index, value) in node.pcrs {
                output::line(&format!("PCR {index}  {value}"))?;
            }
        }
    }
    Ok(())
}

fn link(connected: bool) -> String {
    if connected { "up" } else { "down" }.to_owned()
}

const fn state(state: NodeState) -> &'static str {
    match state {
        NodeState::Joined => "joined",
        NodeState::Active => "active",
        NodeState::Unreachable => "unreachable",
        NodeState::Unknown => "unknown",
    }
}
