//! The rules of publishing that are in force: who may publish and change which agents, and which documents are valid. A
//! reload of the configuration replaces them.

use super::{
    config::PublishConfig,
    document_validation::{ValidDocument, validate_document},
    publisher::Publisher,
};
use crate::{
    agent::AgentId,
    fault::{Fault, FaultCode, Result},
    net::AddressPolicy,
    store::StoredDocument,
};
use arc_swap::ArcSwap;
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// The rules of publishing.
pub(super) struct PublishRules {
    config: ArcSwap<PublishConfig>,
    pub(super) policy: ArcSwap<AddressPolicy>,
}

/// A publisher's rights to one agent.
#[derive(Clone, Copy)]
pub(super) struct WriteAccess<'a> {
    pub(super) publisher: &'a str,
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
        Ok(Self { config: ArcSwap::new(config), policy: ArcSwap::new(policy) })
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
            return Ok(WriteAccess {
                publisher: publisher.owner_key,
                any_owner: matching_rules.any(|rule| rule.any_owner),
            });
        }
        let patterns: Vec<&str> =
            config.rules_for(publisher).flat_map(|rule| &rule.agents).map(|ids| ids.as_str()).take(20).collect();
        let message = format!("This caller may publish only agents that match {}, not '{id}'", patterns.join(", "));
        Err(Fault::new(FaultCode::PermissionDenied, message))
    }

    /// Validates `document`.
    ///
    /// # Errors
    /// `InvalidInput` with every violation.
    pub(super) async fn validate(&self, document: Value) -> Result<ValidDocument> {
        validate_document(document, &self.config.load(), &self.policy.load()).await
    }

    pub(super) fn document_limits(&self) -> DocumentLimits {
        let config = self.config.load();
        DocumentLimits { per_publisher: config.max_documents_per_publisher, total: config.max_documents }
    }

    pub(super) fn poll_interval(&self) -> Duration {
        self.config.load().poll_interval.get()
    }
}

fn usable_config(config: &PublishConfig) -> std::result::Result<Arc<PublishConfig>, Vec<String>> {
    let problems = config.problems();
    if problems.is_empty() { Ok(Arc::new(config.clone())) } else { Err(problems) }
}
