//! What the HTTP API calls. `actor` is what [`Control::authenticate`] gave.

use ironwright_proto::{
    api::{
        ApiErrorBody, AuditEvent, Image, Machine, NewDeploy, NewImage, NewMachine, NewSite, Node, Run, Site,
        SiteCreated, Status,
    },
    ids::Name,
};
use rand::{CryptoRng, RngCore};

use super::Control;
use crate::{error::Error, images::ImageFacts, output::Output, store::Store};

impl<S: Store> Control<S> {
    /// The person whose admin token this is; `None` for an unknown token.
    pub fn authenticate(&self, token: &str) -> Result<Option<String>, Error> {
        unimplemented!()
    }
    /// Numbers for `GET /v1/status`.
    pub fn status(&self, version: &str) -> Result<Status, Error> {
        unimplemented!()
    }
    /// Creates a site, or gives an existing one a new join token in place of the old one.
    pub fn create_site(
        &mut self,
        actor: &str,
        new: &NewSite,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<SiteCreated, Error> {
        unimplemented!()
    }
    /// All sites.
    pub fn sites(&self) -> Result<Vec<Site>, Error> {
        unimplemented!()
    }
    /// Enrolls a machine.
    pub fn create_machine(&mut self, actor: &str, new: &NewMachine, now_ms: i64) -> Result<Machine, Error> {
        unimplemented!()
    }
    /// All machines.
    pub fn machines(&self) -> Result<Vec<Machine>, Error> {
        unimplemented!()
    }
    /// One machine.
    pub fn machine(&self, id: &str) -> Result<Machine, Error> {
        unimplemented!()
    }
    /// Registers an image; the shell then fetches its URL and reports.
    pub fn register_image(&mut self, actor: &str, new: &NewImage, now_ms: i64) -> Result<Image, Error> {
        unimplemented!()
    }
    /// Registers an image whose bytes come with the request.
    pub fn register_upload(&mut self, actor: &str, name: &Name, now_ms: i64) -> Result<Image, Error> {
        unimplemented!()
    }
    /// Notes how many bytes of a fetching image are there; memory only.
    pub fn image_progress(&mut self, name: &Name, fetched_bytes: u64) {
        unimplemented!()
    }
    /// The bytes are in control's blob folder. Gives `Ready`, or `Failed` where the digest is another than asked for.
    pub fn image_fetched(&mut self, name: &Name, facts: &ImageFacts, now_ms: i64) -> Result<Image, Error> {
        unimplemented!()
    }
    /// The bytes could not be had.
    pub fn image_failed(&mut self, name: &Name, error: ApiErrorBody, now_ms: i64) -> Result<Image, Error> {
        unimplemented!()
    }
    /// After a start: images whose URL has to be fetched (again). Uploads that a restart cut off become `Failed`.
    pub fn resume_images(&mut self, now_ms: i64) -> Result<Vec<Image>, Error> {
        unimplemented!()
    }
    /// All images.
    pub fn images(&self) -> Result<Vec<Image>, Error> {
        unimplemented!()
    }
    /// One image.
    pub fn image(&self, name: &str) -> Result<Image, Error> {
        unimplemented!()
    }
    /// Starts a deploy run.
    pub fn start_deploy(
        &mut self,
        actor: &str,
        new: &NewDeploy,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<(Run, Output), Error> {
        unimplemented!()
    }
    /// Ends a run early.
    pub fn cancel_run(
        &mut self,
        actor: &str,
        id: &str,
        now_ms: i64,
        rng: &mut (impl RngCore + CryptoRng),
    ) -> Result<(Run, Output), Error> {
        unimplemented!()
    }
    /// All runs, oldest first.
    pub fn runs(&self) -> Result<Vec<Run>, Error> {
        unimplemented!()
    }
    /// One run, with the progress of its step.
    pub fn run(&self, id: &str) -> Result<Run, Error> {
        unimplemented!()
    }
    /// All nodes.
    pub fn nodes(&self) -> Result<Vec<Node>, Error> {
        unimplemented!()
    }
    /// One node.
    pub fn node(&self, id: &str) -> Result<Node, Error> {
        unimplemented!()
    }
    /// At most `limit` audit entries with a number above `after`.
    pub fn events_after(&self, after: u64, limit: usize) -> Result<Vec<AuditEvent>, Error> {
        unimplemented!()
    }
}
