//! Agent registry: which agents exist. Feeds report documents, the catalogue compiles them into routes, and a call
//! looks its route up in a snapshot without a lock.
//! A source that fails loses no agents: a part that cannot be read keeps its last known good content.
//! The registry does not know what a route is or how a call uses it.

mod agent_ownership;
mod agent_snapshot;
mod aidip_lookup;
mod catalogue;
mod conditional_get;
mod config;
mod document_parser;
mod embedded;
mod endpoint_rules;
mod feed;
mod file_document;
mod file_feed;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod http_feed;
mod ingest;
mod ingest_worker;
mod json_document_ranges;
mod kubernetes_feed;
mod last_known_good;
mod loss_guard;
mod merge_sources;
mod mqtt_feed;
mod on_demand_lookup;
mod open_sources;
mod poller;
mod route_compilation;
mod signature_policy;
mod source_health;
mod source_manager;
mod source_poll;
mod source_spec;
mod source_state;
mod table_task;
#[cfg(test)]
mod test_feed;

pub use agent_ownership::{AgentOwnership, PublisherBudget};
pub use agent_snapshot::{AgentSnapshot, DocumentRejection};
pub use aidip_lookup::{LookupSources, open_lookups};
pub use catalogue::Catalogue;
pub use config::{
    AgentSourcesConfig, CacheBounds, LossGuardConfig, RemoteSourceConfig, SourceConfig, SourceKind,
    default_last_known_good_folder,
};
pub use document_parser::parse_yaml_value;
pub use embedded::{
    DocumentRevision, DocumentWrites, EmbeddedRegistry, ImportReport, PublishConfig, PublishOutcome, PublishedDocument,
    PublishedFeed, Publisher, PublisherRule, RegistryArchive, RejectedFile, WritePrecondition, parse_document,
};
pub use endpoint_rules::{EndpointRules, EndpointTrust, OnDemandServers};
pub use feed::{DocumentBody, Feed, FeedPart, PartUpdate, PollResult, RawDocument};
pub use file_feed::FileFeed;
pub use http_feed::convert_published_card;
pub use kubernetes_feed::{KubernetesFeed, KubernetesSourceConfig};
pub use loss_guard::LossGuardPolicy;
pub use mqtt_feed::{MqttFeed, MqttSourceConfig};
pub use on_demand_lookup::{AgentLookup, LookupTtl, OnDemandCatalogue};
pub use open_sources::{OpenedSources, SourceDependencies};
pub use route_compilation::CompileRoute;
pub use source_health::{DocumentWarnings, SourceHealth};
pub use source_manager::SourceManager;
pub use source_poll::{Generation, IngestOutcome, SourcePoll};
pub use source_spec::SourceSpec;

/// Maximum number of agents in one gateway, over all sources.
pub const MAX_AGENTS: usize = 200_000;

#[cfg(test)]
mod tests;
