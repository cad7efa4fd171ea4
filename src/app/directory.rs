//! Wiring of the directory: search index, publishing, signing, and the task that updates the index.

use super::form::within;
use crate::{
    agent::metadata_schema,
    config::File,
    directory::{Credentials, Directory, Indexed},
    gateway::{Delegation, Route},
    names::Resolver,
    registry::{Catalogue, Registry},
    seal::Signer,
    search::{self, Index},
    unit::SecretRef,
};
use std::{sync::Arc, time::Instant};
use tokio::{sync::watch, task::JoinSet};

/// Pause after an index update, as a multiple of the update's duration, so that bursts of changes are batched.
const REST: u32 = 2;

/// The search index and the task that updates it; both survive reloads of the configuration.
pub(super) struct Found {
    index: Arc<Index>,
    config: search::Config,
    indexed: Indexed,
    _task: JoinSet<()>,
}

impl Found {
    /// Creates an index and starts the task that follows the catalogue.
    ///
    /// # Errors
    /// Every problem of the configuration.
    pub(super) fn new(config: &search::Config, catalogue: &Arc<Catalogue<Route>>) -> Result<Self, Vec<String>> {
        let index = Arc::new(Index::new(config)?);
        let (takes, taken) = watch::channel(0);
        let mut task = JoinSet::new();
        task.spawn(follow(Arc::clone(catalogue), Arc::clone(&index), takes));
        let indexed = Indexed { changed: catalogue.changed(), taken };
        Ok(Self { index, config: config.clone(), indexed, _task: task })
    }

    /// Returns a handle that tells how far the index has followed the catalogue.
    pub(super) fn indexed(&self) -> Indexed {
        self.indexed.clone()
    }

    /// Whether the index was created with an equal configuration.
    pub(super) fn is_as(&self, config: &search::Config) -> bool {
        self.config == *config
    }
}

/// Builds the directory of a configuration.
///
/// # Errors
/// Every problem, by its path in the section `directory`.
pub(super) fn directory(
    file: &File,
    found: &Found,
    registry: Option<Arc<Registry>>,
    names: &Arc<Resolver>,
) -> Result<Arc<Directory>, Vec<String>> {
    let config = file.directory.clone();
    let mut problems = config.problems();
    let signer = config.signing_key.as_ref().map(signer).transpose();
    let signer = signer.map_err(|why| problems.push(format!("signing_key: {why}"))).unwrap_or_default();
    if !problems.is_empty() {
        return Err(problems);
    }
    let keys = file.auth.api_keys.as_ref();
    let credentials = Credentials {
        api_key: keys.and_then(|keys| keys.header.parse().ok()),
        bearer: file.auth.bearer.is_some(),
        certificate: file.auth.mtls.is_some(),
    };
    let index = Arc::clone(&found.index);
    let metadata = Some(Arc::new(metadata_schema().clone()));
    let (indexed, names) = (Some(found.indexed()), Some(Arc::clone(names)));
    Ok(Arc::new(Directory { index, indexed, registry, signer, credentials, metadata, names, config }))
}

fn signer(key: &SecretRef) -> Result<Arc<Signer>, String> {
    Signer::from_pem(key.load()?.expose()).map(Arc::new)
}

/// Builds the signer of delegation chains, which uses the directory's signing key.
///
/// # Errors
/// Every problem, by its path in the file.
pub(super) fn delegation(file: &File, directory: &Directory) -> Result<Option<Arc<Delegation>>, Vec<String>> {
    let Some(config) = &file.delegation else { return Ok(None) };
    let made = Delegation::new(config, directory.signer.as_ref(), directory.config.external_url.as_deref());
    made.map(|made| Some(Arc::new(made))).map_err(|whys| within("delegation", whys))
}

/// Applies every change of the catalogue to the index, one after the other.
async fn follow(catalogue: Arc<Catalogue<Route>>, index: Arc<Index>, takes: watch::Sender<u64>) {
    let mut changed = catalogue.changed();
    loop {
        let (began, now) = (Instant::now(), *changed.borrow_and_update());
        let (catalogue, index) = (Arc::clone(&catalogue), Arc::clone(&index));
        let update = move || {
            let snapshot = catalogue.snapshot();
            index.update(snapshot.iter().map(|(_, route)| Arc::clone(route.agent())).collect());
        };
        if tokio::task::spawn_blocking(update).await.is_err() {
            tracing::error!("search index update failed: searches use the previous index");
        }
        takes.send_replace(now);
        tokio::time::sleep(began.elapsed() * REST).await;
        if changed.changed().await.is_err() {
            return;
        }
    }
}
