//! Wiring of the directory: search index, publishing, signing, and the task that updates the index.

use super::problem_paths::prefix_problems;
use crate::{
    agent::metadata_schema,
    auth::Authorizer,
    config::GatewayConfig,
    directory::{
        AcceptedCredentials, AgentDirectory, CallConventions, GetRule, IndexProgress, LastModifiedTable,
        RepresentationCache, TaskConventions, VisibilityMaskCache,
    },
    gateway::{DelegationPolicy, Route},
    registry::{Catalogue, EmbeddedRegistry},
    resolver::UriResolver,
    search::{self, SearchIndex},
    signing::SigningKey,
    values::SecretRef,
};
use std::{sync::Arc, time::Instant};
use tokio::{sync::watch, task::JoinSet};

/// Pause after an index update, as a multiple of the update's duration. Batches bursts of changes.
const UPDATE_PAUSE_FACTOR: u32 = 2;

/// The search index and the task that updates it; both survive reloads of the configuration.
pub(super) struct SearchIndexer {
    index: Arc<SearchIndex>,
    config: search::SearchConfig,
    progress: IndexProgress,
    _task: JoinSet<()>,
}

impl SearchIndexer {
    /// Creates an index and starts the task that follows the catalogue.
    ///
    /// # Errors
    /// Every problem of the configuration.
    pub(super) fn new(config: &search::SearchConfig, catalogue: &Arc<Catalogue<Route>>) -> Result<Self, Vec<String>> {
        let index = Arc::new(SearchIndex::new(config)?);
        let (sender, receiver) = watch::channel(0);
        let mut task = JoinSet::new();
        task.spawn(follow_catalogue(Arc::clone(catalogue), Arc::clone(&index), sender));
        let progress = IndexProgress { published: catalogue.subscribe(), indexed: receiver };
        Ok(Self { index, config: config.clone(), progress, _task: task })
    }

    /// Returns a handle that compares the generation of the index with that of the catalogue.
    pub(super) fn index_progress(&self) -> IndexProgress {
        self.progress.clone()
    }

    /// Returns whether the index was created with an equal configuration.
    pub(super) fn has_config(&self, config: &search::SearchConfig) -> bool {
        self.config == *config
    }
}

/// Builds the directory of a configuration. Without an authorizer, it is built for its problems only.
///
/// # Errors
/// Every problem, by its path in the section `directory`.
pub(super) fn build_directory(
    file: &GatewayConfig,
    search_indexer: &SearchIndexer,
    registry: Option<Arc<EmbeddedRegistry>>,
    resolver: &Arc<UriResolver>,
    auth: Option<&Authorizer>,
) -> Result<Arc<AgentDirectory>, Vec<String>> {
    let config = file.directory.clone();
    let mut problems = config.problems();
    let signer = config.signing_key.as_ref().map(load_signer).transpose();
    let signer = signer.map_err(|why| problems.push(format!("signing_key: {why}"))).unwrap_or_default();
    if !problems.is_empty() {
        return Err(problems);
    }
    let credentials = AcceptedCredentials(auth.map(Authorizer::accepted_credentials).unwrap_or_default());
    let index = Arc::clone(&search_indexer.index);
    Ok(Arc::new(AgentDirectory {
        index,
        masks: VisibilityMaskCache::default(),
        last_modified: LastModifiedTable::default(),
        representations: RepresentationCache::default(),
        index_progress: Some(search_indexer.index_progress()),
        registry,
        signing_key: signer,
        credentials,
        conventions: call_conventions(file, auth),
        metadata_schema: Some(Arc::new(metadata_schema().clone())),
        resolver: Some(Arc::clone(resolver)),
        config,
    }))
}

/// Returns the settings of other sections that documents tell callers.
fn call_conventions(file: &GatewayConfig, auth: Option<&Authorizer>) -> CallConventions {
    let tasks = file.tasks.as_ref().map(|tasks| TaskConventions {
        result_ttl: tasks.result_ttl.get(),
        poll_interval: tasks.poll_interval.get(),
        resume_window: tasks.resume.as_ref().map(|resume| resume.window.get()),
        has_callbacks: tasks.callbacks.is_some(),
    });
    let get_rules = file
        .agents
        .rules
        .iter()
        .filter_map(|rule| rule.get.map(|is_allowed| GetRule { agents: rule.agents.clone(), is_allowed }));
    CallConventions {
        tasks,
        idempotency_ttl: file.idempotency.ttl.get(),
        bridged_agents: file.mqtt_bridge.iter().flat_map(|bridge| bridge.agents.clone()).collect(),
        max_batch_items: file.contract.batch.max_items,
        get_rules: get_rules.collect(),
        has_registry: file.registry.is_some(),
        has_pairing: file.cors.as_ref().is_some_and(|cors| cors.pairing.is_some()),
        allows_anonymous_calls: auth.is_some_and(Authorizer::grants_anonymous_discovery),
    }
}

fn load_signer(key: &SecretRef) -> Result<Arc<SigningKey>, String> {
    SigningKey::from_pem(key.load()?.expose()).map(Arc::new)
}

/// Builds the signer of delegation chains, which uses the directory's signing key.
///
/// # Errors
/// Every problem, by its path in the file.
pub(super) fn build_delegation(
    file: &GatewayConfig,
    directory: &AgentDirectory,
) -> Result<Option<Arc<DelegationPolicy>>, Vec<String>> {
    let Some(config) = &file.delegation else { return Ok(None) };
    let policy =
        DelegationPolicy::new(config, directory.signing_key.as_ref(), directory.config.external_url.as_deref());
    policy.map(|policy| Some(Arc::new(policy))).map_err(|problems| prefix_problems("delegation", problems))
}

pub(super) fn create_search_indexer(
    file: &GatewayConfig,
    catalogue: &Arc<Catalogue<Route>>,
) -> Result<Arc<SearchIndexer>, Vec<String>> {
    SearchIndexer::new(&file.directory.search, catalogue)
        .map(Arc::new)
        .map_err(|problems| prefix_problems("directory.search", problems))
}

/// Updates the index after each change of the catalogue. Changes during an update are applied together.
async fn follow_catalogue(
    catalogue: Arc<Catalogue<Route>>,
    index: Arc<SearchIndex>,
    indexed_generation: watch::Sender<u64>,
) {
    let mut generation_changes = catalogue.subscribe();
    loop {
        let (started_at, generation) = (Instant::now(), *generation_changes.borrow_and_update());
        let (catalogue, index) = (Arc::clone(&catalogue), Arc::clone(&index));
        let update = move || {
            let snapshot = catalogue.snapshot();
            index.update(snapshot.iter().map(|(_, route)| Arc::clone(route.agent())).collect());
        };
        if tokio::task::spawn_blocking(update).await.is_err() {
            tracing::error!("search index update failed: searches use the previous index");
        }
        indexed_generation.send_replace(generation);
        tokio::time::sleep(started_at.elapsed() * UPDATE_PAUSE_FACTOR).await;
        if generation_changes.changed().await.is_err() {
            return;
        }
    }
}
