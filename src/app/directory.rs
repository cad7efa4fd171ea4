//! Wiring of the directory: what is searched, where it is published, and the task that keeps the index up to date.

use crate::{
    agent::metadata_schema,
    config::File,
    directory::{Credentials, Directory},
    gateway::Route,
    registry::{Catalogue, Registry},
    seal::Signer,
    search::{self, Index},
    unit::SecretRef,
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinSet};

/// The least time between two updates of the index: a storm of changes is taken in together.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a start waits for the index.
const PATIENCE: Duration = Duration::from_secs(2);

/// What outlives a configuration.
pub(super) struct Found {
    index: Arc<Index>,
    config: search::Config,
    indexed: watch::Receiver<u64>,
    _task: JoinSet<()>,
}

impl Found {
    /// An index that follows the catalogue.
    ///
    /// # Errors
    /// Every problem of the configuration.
    pub(super) fn new(config: &search::Config, catalogue: &Arc<Catalogue<Route>>) -> Result<Self, Vec<String>> {
        let index = Arc::new(Index::new(config)?);
        let (taken, indexed) = watch::channel(0);
        let mut task = JoinSet::new();
        task.spawn(follow(Arc::clone(catalogue), Arc::clone(&index), taken));
        Ok(Self { index, config: config.clone(), indexed, _task: task })
    }

    /// Waits a while until what `catalogue` holds now can be found. Calls do not need it, so it is not waited for long.
    pub(super) async fn ready(mut indexed: watch::Receiver<u64>, catalogue: &Catalogue<Route>) {
        let now = *catalogue.changed().borrow();
        // What is not indexed by then is later; an index that has ended says so itself.
        drop(tokio::time::timeout(PATIENCE, indexed.wait_for(|taken| *taken >= now)).await);
    }

    /// Counts the changes of the catalogue that can be found.
    pub(super) fn indexed(&self) -> watch::Receiver<u64> {
        self.indexed.clone()
    }

    /// Whether it was made as `config` says.
    pub(super) fn is_as(&self, config: &search::Config) -> bool {
        self.config == *config
    }
}

/// The directory of a configuration.
///
/// # Errors
/// Every problem, by its path in the section `directory`.
pub(super) fn directory(
    file: &File,
    found: &Found,
    registry: Option<Arc<Registry>>,
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
    Ok(Arc::new(Directory { index, registry, signer, credentials, metadata, config }))
}

fn signer(key: &SecretRef) -> Result<Arc<Signer>, String> {
    Signer::from_pem(key.load()?.expose()).map(Arc::new)
}

/// Takes every change of the catalogue into the index, one after the other.
async fn follow(catalogue: Arc<Catalogue<Route>>, index: Arc<Index>, taken: watch::Sender<u64>) {
    let mut changed = catalogue.changed();
    loop {
        let now = *changed.borrow_and_update();
        let (catalogue, index) = (Arc::clone(&catalogue), Arc::clone(&index));
        let update = move || {
            let snapshot = catalogue.snapshot();
            index.update(snapshot.iter().map(|(_, route)| Arc::clone(route.agent())).collect());
        };
        if tokio::task::spawn_blocking(update).await.is_err() {
            tracing::error!("agents could not be taken into the index; they are found as they were");
        }
        taken.send_replace(now);
        tokio::time::sleep(PAUSE).await;
        if changed.changed().await.is_err() {
            return;
        }
    }
}
