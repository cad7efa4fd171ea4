//! The rules of publishing that are in force: who may publish and change which agents, and which documents are valid. A
//! reload of the configuration replaces them.

use super::{
    super::{AgentOwnership, PublisherBudget},
    config::PublishConfig,
    document_validation::{EndpointValidator, ValidDocument, validate_document},
    publisher::Publisher,
};
use crate::{
    agent::{Agent, AgentId, EndpointOrigin},
    fault::{Fault, FaultCode, Result},
    net::AddressPolicy,
    store::{DeletedId, StoredDocument},
    values::ConfigDuration,
};
use arc_swap::{ArcSwap, ArcSwapOption};
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use time::OffsetDateTime;

/// The rules of publishing.
pub(super) struct PublishRules {
    config: ArcSwap<PublishConfig>,
    pub(super) policy: ArcSwap<AddressPolicy>,
    /// In two `Arc`s, because `ArcSwapOption` needs a sized type.
    ownership: ArcSwapOption<Arc<dyn AgentOwnership>>,
}

/// A publisher's rights to one agent.
#[derive(Clone, Copy)]
pub(super) struct WriteAccess<'a> {
    pub(super) publisher: Publisher<'a>,
    /// Whether the publisher may also change the agents of other publishers.
    pub(super) any_owner: bool,
}

/// The maximum numbers of documents that a write has to respect.
#[derive(Clone, Copy)]
pub(super) struct DocumentLimits {
    pub(super) per_publisher: u32,
    pub(super) total: u32,
}

impl PublishRules {
    /// Returns the rules of a configuration.
    ///
    /// # Errors
    /// Every value that cannot be used, by its path in the section.
    pub(super) fn new(config: &PublishConfig, policy: Arc<AddressPolicy>) -> std::result::Result<Self, Vec<String>> {
        let config = usable_config(config)?;
        Ok(Self { config: ArcSwap::new(config), policy: ArcSwap::new(policy), ownership: ArcSwapOption::empty() })
    }

    /// Replaces the rules.
    ///
    /// # Errors
    /// As [`PublishRules::new`]; then nothing is changed.
    pub(super) fn replace(
        &self,
        config: &PublishConfig,
        policy: Arc<AddressPolicy>,
    ) -> std::result::Result<(), Vec<String>> {
        self.config.store(usable_config(config)?);
        self.policy.store(policy);
        Ok(())
    }

    /// Returns whether `publisher` may publish at all.
    pub(super) fn may_publish(&self, publisher: Publisher<'_>) -> bool {
        self.config.load().rules_for(publisher).next().is_some()
    }

    /// Returns whether `publisher` may change this document.
    pub(super) fn may_change(&self, publisher: Publisher<'_>, id: &AgentId, stored: &StoredDocument) -> bool {
        let is_owner = *stored.owner == *publisher.owner_key;
        self.config.load().rules_for(publisher).any(|rule| rule.allows_id(id.as_str()) && (is_owner || rule.any_owner))
    }

    /// Returns whether `publisher` owned the deleted agent `id`, which is still reserved, and may publish it again.
    pub(super) fn has_reserved(&self, publisher: Publisher<'_>, id: &AgentId, deleted: &DeletedId) -> bool {
        let is_owner = *deleted.owner == *publisher.owner_key;
        let is_allowed = || self.config.load().rules_for(publisher).any(|rule| rule.allows_id(id.as_str()));
        is_owner && deleted.is_reserved(self.deleted_id_retention(), OffsetDateTime::now_utc()) && is_allowed()
    }

    /// Returns whether `publisher` may change the agent `id`, regardless of its owner.
    pub(super) fn may_change_any_owner(&self, publisher: Publisher<'_>, id: &AgentId) -> bool {
        self.config.load().rules_for(publisher).any(|rule| rule.any_owner && rule.allows_id(id.as_str()))
    }

    /// Checks that `publisher` may publish at all.
    ///
    /// # Errors
    /// `PermissionDenied`.
    pub(super) fn require_publisher(&self, publisher: Publisher<'_>) -> Result<()> {
        if self.may_publish(publisher) {
            Ok(())
        } else {
            Err(Fault::new(FaultCode::PermissionDenied, "This caller may not publish agents"))
        }
    }

    /// Checks that `publisher` may publish the agent `id`.
    ///
    /// # Errors
    /// `PermissionDenied`.
    pub(super) fn authorize_write<'a>(&self, publisher: Publisher<'a>, id: &AgentId) -> Result<WriteAccess<'a>> {
        self.require_publisher(publisher)?;
        let config = self.config.load();
        let mut matching_rules = config.rules_for(publisher).filter(|rule| rule.allows_id(id.as_str())).peekable();
        if matching_rules.peek().is_some() {
            return Ok(WriteAccess { publisher, any_owner: matching_rules.any(|rule| rule.any_owner) });
        }
        let patterns: Vec<&str> =
            config.rules_for(publisher).flat_map(|rule| &rule.agents).map(|ids| ids.as_str()).take(20).collect();
        let message = format!("This caller may publish only agents that match {}, not '{id}'", patterns.join(", "));
        Err(Fault::new(FaultCode::PermissionDenied, message))
    }

    /// Sets where to ask who owns the agents in force.
    pub(super) fn set_ownership(&self, ownership: Arc<dyn AgentOwnership>) {
        self.ownership.store(Some(Arc::new(ownership)));
    }

    /// Returns whether an agent in force has this id.
    pub(super) fn is_id_of_an_agent(&self, id: &AgentId) -> bool {
        self.ownership.load_full().is_some_and(|ownership| ownership.has_agent(id))
    }

    /// Validates everything of a document of `publisher` but its endpoint.
    ///
    /// # Errors
    /// `InvalidInput` with every violation.
    pub(super) async fn validate_document(&self, publisher: &str, document: Value) -> Result<ValidDocument> {
        let (ownership, publisher) = (self.ownership.load_full(), publisher.to_owned());
        let budget = move |agent: &Agent| match ownership {
            Some(ownership) => ownership.publisher_budget(&publisher, agent),
            None => PublisherBudget::default(),
        };
        validate_document(document, budget).await
    }

    /// Checks that `publisher` may name the endpoint of a document of `owner`; `None` for an operator who imports it.
    ///
    /// # Errors
    /// `InvalidInput`.
    pub(super) async fn validate_endpoint(
        &self,
        publisher: Option<Publisher<'_>>,
        owner: Option<&str>,
        document: &ValidDocument,
    ) -> Result<()> {
        let (config, policy, ownership) = (self.config.load(), self.policy.load(), self.ownership.load_full());
        let ownership = ownership.as_deref().map(|ownership| &**ownership);
        let validator = EndpointValidator { publisher, owner, config: &config, policy: &policy, ownership };
        validator.validate(&document.endpoint).await
    }

    /// Returns whether the endpoint of a document is listed for its owner, who may then be at a server of other owners.
    pub(super) fn lists_endpoint_of(&self, owner: &str, document: &ValidDocument) -> bool {
        self.config.load().lists_endpoint_of(owner, &EndpointOrigin::from(&document.endpoint))
    }

    /// Checks once more that no other owner has the server of a document, when no other document of it is being written.
    ///
    /// # Errors
    /// `InvalidInput`.
    pub(super) fn validate_server_owner(&self, owner: &str, document: &ValidDocument) -> Result<()> {
        let (config, policy, ownership) = (self.config.load(), self.policy.load(), self.ownership.load_full());
        let ownership = ownership.as_deref().map(|ownership| &**ownership);
        let validator =
            EndpointValidator { publisher: None, owner: Some(owner), config: &config, policy: &policy, ownership };
        validator.validate_server_owner(&document.endpoint)
    }

    pub(super) fn document_limits(&self) -> DocumentLimits {
        let config = self.config.load();
        DocumentLimits { per_publisher: config.max_documents_per_publisher, total: config.max_documents }
    }

    pub(super) fn deleted_id_retention(&self) -> Duration {
        self.config.load().deleted_id_retention.get()
    }

    pub(super) fn history_retention(&self) -> Option<Duration> {
        self.config.load().history_retention.map(ConfigDuration::get)
    }

    pub(super) fn poll_interval(&self) -> Duration {
        self.config.load().poll_interval.get()
    }
}

fn usable_config(config: &PublishConfig) -> std::result::Result<Arc<PublishConfig>, Vec<String>> {
    let problems = config.problems();
    if problems.is_empty() { Ok(Arc::new(config.clone())) } else { Err(problems) }
}
