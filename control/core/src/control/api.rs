//! What the HTTP API calls. `actor` is what [`Control::authenticate`] gave.

use ironwright_proto::{
    api::{
        ApiErrorBody, AuditEvent, Command, Image, ImageState, Machine, MachineChange, NewDeploy, NewImage,
        NewMachine, NewSite, Node, Run, Site, SiteCreated, Status,
    },
    ids::{Digest, Name},
};
use rand::{CryptoRng, RngCore};

use super::Control;
use crate::{
    admin, audit,
    commands::{self, NodeOrder},
    error::Error,
    images::{self, ImageFacts},
    machines, nodes,
    output::Output,
    runs, sites,
    specs::{self, SpecStatus},
    store::Store,
    tx::{Seed, Tx},
};

impl<S: Store> Control<S> {
    /// The person whose admin token this is; `None` for an unknown token.
    pub fn authenticate(&self, token: &str) -> Result<Option<String>, Error> {
        self.store.read(|txn| admin::authenticate(txn, token))
    }

    /// Numbers for `GET /v1/status`. `version` is the program's.
    pub fn status(&self, version: &str) -> Result<Status, Error> {
        Ok(Status {
            version: version.to_owned(),
            ca_pin: self.settings.ca_pin,
            sessions: self.sessions.count() as u64,
            active_runs: self.store.read(runs::count_active)? as u64,
        })
    }

    /// Creates a site, or gives an existing one a new join token in place of the old one.
    pub fn create_site(
        &mut self,
        actor: &str,
        new: &NewSite,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<SiteCreated, Error> {
        let (created, _) = self.commit(now_ms, rng, |tx| sites::create(tx, actor, new))?;
        Ok(created)
    }

    /// All sites.
    pub fn sites(&self) -> Result<Vec<Site>, Error> {
        self.store.read(sites::all)
    }

    /// Enrolls a machine.
    pub fn create_machine(&mut self, actor: &str, new: &NewMachine, now_ms: i64) -> Result<Machine, Error> {
        self.write(now_ms, |tx| machines::create(tx, actor, new))
    }

    /// Changes what is said of a machine.
    pub fn change_machine(
        &mut self,
        actor: &str,
        id: &str,
        change: &MachineChange,
        now_ms: i64,
    ) -> Result<Machine, Error> {
        self.write(now_ms, |tx| machines::change(tx, actor, id, change))
    }

    /// Removes a machine and its node; gives what it was.
    pub fn remove_machine(
        &mut self,
        actor: &str,
        id: &str,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<(Machine, Output), Error> {
        let (machine, effects) = self.commit(now_ms, rng, |tx| machines::remove(tx, actor, id))?;
        let mut output = self.deliver(effects, now_ms, rng)?;
        if let Some(node) = &machine.node_id {
            output.append(self.revoke(node));
        }
        Ok((machine, output))
    }

    /// All machines.
    pub fn machines(&self) -> Result<Vec<Machine>, Error> {
        self.store.read(machines::all)
    }

    /// One machine.
    pub fn machine(&self, id: &str) -> Result<Machine, Error> {
        self.store.read(|txn| machines::need(txn, id))
    }

    /// Registers an image; the shell then fetches its URL and reports.
    pub fn register_image(&mut self, actor: &str, new: &NewImage, now_ms: i64) -> Result<Image, Error> {
        self.write(now_ms, |tx| images::register(tx, actor, new))
    }

    /// Registers an image whose bytes come with the request.
    pub fn register_upload(&mut self, actor: &str, name: &Name, now_ms: i64) -> Result<Image, Error> {
        self.write(now_ms, |tx| images::register_upload(tx, actor, name))
    }

    /// Notes how many bytes of a fetching image are there; memory only.
    pub fn image_progress(&mut self, name: &Name, fetched_bytes: u64) {
        self.memory.fetched.insert(name.to_string(), fetched_bytes);
        self.memory.version += 1;
    }

    /// The bytes are in control's blob folder. Gives `Ready`, or `Failed` where the digest is another than asked
    /// for.
    pub fn image_fetched(&mut self, name: &Name, facts: &ImageFacts, now_ms: i64) -> Result<Image, Error> {
        self.memory.fetched.remove(name.as_str());
        self.write(now_ms, |tx| images::fetched(tx, name, facts))
    }

    /// The bytes could not be had.
    #[expect(clippy::needless_pass_by_value, reason = "a transaction may run twice, so it takes copies")]
    pub fn image_failed(&mut self, name: &Name, error: ApiErrorBody, now_ms: i64) -> Result<Image, Error> {
        self.memory.fetched.remove(name.as_str());
        self.write(now_ms, |tx| images::fail(tx, name, error.clone()))
    }

    /// After a start: images whose URL has to be fetched (again). Uploads that a restart cut off become `Failed`.
    pub fn resume_images(&mut self, now_ms: i64) -> Result<Vec<Image>, Error> {
        self.write(now_ms, images::resume)
    }

    /// All images.
    pub fn images(&self) -> Result<Vec<Image>, Error> {
        let images = self.store.read(images::all)?;
        Ok(images.into_iter().map(|image| self.with_fetched(image)).collect())
    }

    /// One image.
    pub fn image(&self, name: &str) -> Result<Image, Error> {
        Ok(self.with_fetched(self.store.read(|txn| images::need(txn, name))?))
    }

    /// Forgets an image; gives what it was. Whether its bytes are still wanted says [`Self::image_has_bytes`].
    pub fn remove_image(&mut self, actor: &str, name: &str, now_ms: i64) -> Result<Image, Error> {
        self.write(now_ms, |tx| images::remove(tx, actor, name))
    }

    /// Whether an image has these bytes.
    pub fn image_has_bytes(&self, digest: &Digest) -> Result<bool, Error> {
        self.store.read(|txn| images::has_bytes(txn, digest))
    }

    fn with_fetched(&self, mut image: Image) -> Image {
        if image.state == ImageState::Fetching {
            image.fetched_bytes = self.memory.fetched.get(image.name.as_str()).copied().unwrap_or(0);
        }
        image
    }

    /// Starts a deploy run.
    pub fn start_deploy(
        &mut self,
        actor: &str,
        new: &NewDeploy,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<(Run, Output), Error> {
        let (run, effects) = self.commit(now_ms, rng, |tx| runs::start(tx, actor, new, &self.facts))?;
        Ok((run, self.deliver(effects, now_ms, rng)?))
    }

    /// Replaces a section of a node's spec, or takes it out; gives the spec's generation.
    pub fn set_section(
        &mut self,
        actor: &str,
        node: &str,
        name: &str,
        body: Option<&[u8]>,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<(u64, Output), Error> {
        let (generation, effects) = self.commit(now_ms, rng, |tx| specs::set(tx, actor, node, name, body))?;
        Ok((generation, self.deliver(effects, now_ms, rng)?))
    }

    /// How far a node is with its spec.
    pub fn spec_status(&self, node: &str) -> Result<SpecStatus, Error> {
        self.store.read(|txn| specs::status(txn, node))
    }

    /// Orders something of one node; gives the command's id.
    pub fn order(
        &mut self,
        actor: &str,
        new: &NodeOrder,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<(String, Output), Error> {
        let (id, effects) = self.commit(now_ms, rng, |tx| commands::order_by_person(tx, actor, new))?;
        Ok((id, self.deliver(effects, now_ms, rng)?))
    }

    /// One command.
    pub fn command(&self, id: &str) -> Result<Command, Error> {
        self.store.read(|txn| commands::show(txn, id))
    }

    /// Ends a run early.
    pub fn cancel_run(
        &mut self,
        actor: &str,
        id: &str,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<(Run, Output), Error> {
        let (run, effects) = self.commit(now_ms, rng, |tx| runs::cancel(tx, actor, id))?;
        Ok((run, self.deliver(effects, now_ms, rng)?))
    }

    /// All runs, oldest first.
    pub fn runs(&self) -> Result<Vec<Run>, Error> {
        Ok(self.store.read(runs::all)?.into_iter().map(|run| self.with_progress(run)).collect())
    }

    /// One run, with the progress of its step.
    pub fn run(&self, id: &str) -> Result<Run, Error> {
        Ok(self.with_progress(self.store.read(|txn| runs::need(txn, id))?))
    }

    fn with_progress(&self, mut run: Run) -> Run {
        for step in run.steps.iter_mut().filter(|step| !step.state.is_final()) {
            step.progress = step.command_id.as_ref().and_then(|id| self.memory.progress.get(id)).cloned();
        }
        run
    }

    /// All nodes.
    pub fn nodes(&self) -> Result<Vec<Node>, Error> {
        let records = self.store.read(nodes::all)?;
        Ok(records.into_iter().map(|record| self.with_connection(record.node)).collect())
    }

    /// One node.
    pub fn node(&self, id: &str) -> Result<Node, Error> {
        let record = self.store.read(|txn| nodes::get(txn, id))?;
        let record = record.ok_or_else(|| Error::UnknownNode(audit::clip(id)))?;
        Ok(self.with_connection(record.node))
    }

    fn with_connection(&self, mut node: Node) -> Node {
        node.connected = self.sessions.of(&node.id).is_some();
        node
    }

    /// At most `limit` (and [`audit::MAX_EVENTS`]) audit entries with a number above `after`.
    pub fn events_after(&self, after: u64, limit: usize) -> Result<Vec<AuditEvent>, Error> {
        self.store.read(|txn| audit::after(txn, after, limit))
    }

    /// A transaction without randomness and without effects.
    fn write<R>(&self, now_ms: i64, mut f: impl FnMut(&mut Tx<'_>) -> Result<R, Error>) -> Result<R, Error> {
        self.store.write(|txn| f(&mut Tx::new(txn, now_ms, Seed::NONE)))
    }
}
