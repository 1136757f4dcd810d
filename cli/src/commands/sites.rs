//! `ironwright sites`.

use ironwright_proto::api::{NewSite, Site, SiteCreated};

use crate::{args::SitesCommand, client::Client, client_config::write_secret, output};

pub(super) async fn run(client: &Client, command: SitesCommand, json: bool) -> anyhow::Result<()> {
    match command {
        SitesCommand::Add { name, token_file } => {
            // The request replaces an older token, so what can be refused is refused before it.
            if let Some(path) = token_file.as_ref().filter(|path| path.symlink_metadata().is_ok()) {
                anyhow::bail!("{} exists already; name a new file", path.display());
            }
            let created: SiteCreated = client.post("/v1/sites", &NewSite { name }).await?;
            let Some(path) = token_file else {
                return if json { output::json(&created) } else { output::line(&created.join_token) };
            };
            write_secret(&path, &format!("{}\n", created.join_token))?;
            if json {
                return output::json(&created.site);
            }
            output::line(&format!("site {}: its join token is in {}", created.site.name, path.display()))?;
        }
        SitesCommand::List => {
            let sites: Vec<Site> = client.get("/v1/sites").await?;
            if json {
                return output::json(&sites);
            }
            let rows: Vec<_> = sites
                .into_iter()
                .map(|site| {
                    vec![
                        site.name.to_string(),
                        site.lease_epoch.to_string(),
                        output::or_dash(site.holder),
                        output::or_dash(site.address),
                    ]
                })
                .collect();
            output::text(&output::table(&["SITE", "LEASE", "HOLDER", "ADDRESS"], &rows))?;
        }
    }
    Ok(())
}
