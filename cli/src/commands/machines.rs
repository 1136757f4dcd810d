//! `ironwright machines`.

use ironwright_proto::api::{Machine, MachineChange, NewMachine};

use crate::{args::MachinesCommand, client::Client, output};

pub(super) async fn run(client: &Client, command: MachinesCommand, json: bool) -> anyhow::Result<()> {
    match command {
        MachinesCommand::Add { id, mac, site, product_uuid, allow_no_tpm } => {
            let request = NewMachine { id, mac, product_uuid, site, allow_no_tpm };
            let machine: Machine = client.post("/v1/machines", &request).await?;
            if json {
                return output::json(&machine);
            }
            output::line(&format!("machine {} added ({})", machine.id, machine.mac))?;
        }
        MachinesCommand::Set { id, mac, site, product_uuid, allow_no_tpm, forget_tpm } => {
            let change = MachineChange { mac, product_uuid, site, allow_no_tpm, forget_tpm };
            let machine: Machine = client.patch(&format!("/v1/machines/{id}"), &change).await?;
            if json {
                return output::json(&machine);
            }
            output::line(&format!("machine {} changed", machine.id))?;
        }
        MachinesCommand::Remove { id } => {
            let machine: Machine = client.delete(&format!("/v1/machines/{id}")).await?;
            if json {
                return output::json(&machine);
            }
            output::line(&format!("machine {} removed", machine.id))?;
        }
        MachinesCommand::List => {
            let machines: Vec<Machine> = client.get("/v1/machines").await?;
            if json {
                return output::json(&machines);
            }
            let rows: Vec<_> = machines
                .into_iter()
                .map(|m| {
                    vec![
                        m.id.to_string(),
                        m.mac.to_string(),
                        output::or_dash(m.site),
                        output::or_dash(m.node_id),
                    ]
                })
                .collect();
            output::text(&output::table(&["MACHINE", "MAC", "SITE", "NODE"], &rows))?;
        }
        MachinesCommand::Show { id } => {
            let machine: Machine = client.get(&format!("/v1/machines/{id}")).await?;
            if json {
                return output::json(&machine);
            }
            output::text(&output::fields(&[
                ("machine", machine.id.to_string()),
                ("MAC", machine.mac.to_string()),
                ("site", output::or_dash(machine.site)),
                ("product UUID", output::or_dash(machine.product_uuid)),
                ("may join without TPM", machine.allow_no_tpm.to_string()),
                ("EK", output::or_dash(machine.ek_fingerprint)),
                ("node", output::or_dash(machine.node_id)),
                ("enrolled", output::time(machine.created_ms)),
            ]))?;
            if let Some(inventory) = &machine.inventory {
                output::line("inventory")?;
                output::json(inventory)?;
            }
        }
    }
    Ok(())
}
