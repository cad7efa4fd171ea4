//! Directory of agents: discovery and publishing in each format that clients read. It builds responses; sessions,
//! authentication and the format of errors belong to `gateway`. It shows a caller only the agents that
//! [`AgentVisibility`] permits.

mod accepted_credentials;
mod address_detection;
mod address_redaction;
mod agent_descriptor;
mod agent_document;
mod agent_list;
mod agent_summary;
mod bounded_list;
mod call_conventions;
mod caller_pages;
mod card;
mod conditional_response;
mod config;
mod directory_call;
mod directory_request;
mod document_changes;
mod framework_discovery;
mod index_progress;
mod intent_resolution;
mod json_object_builder;
mod last_modified_table;
mod media_types;
mod name_resolution;
mod openapi;
mod publishing;
mod query_params;
mod representation_cache;
mod request_body;
mod search_filters;
mod version_addresses;
mod visibility_mask_cache;
mod visible_agent_search;

pub use accepted_credentials::AcceptedCredentials;
pub use call_conventions::{CallConventions, GetRule, TaskConventions};
pub use caller_pages::{CallLimits, FaultPage};
pub use config::{DirectoryConfig, EndpointExposure, ProviderConfig, ResolutionMinimums};
pub use directory_call::{AgentVisibility, ChangeRecord, DirectoryCall, DirectoryResponse};
pub use directory_request::{
    CALLER_PAGE_PATHS, DIRECTORY_PATHS, DirectoryRequest, INVOKE_PATHS, MESSAGE_PATHS, PAIR_PATH, PIPELINE_PATH,
    ReadExtent, TASK_PATHS, is_caller_page_path,
};
pub use index_progress::IndexProgress;
pub use last_modified_table::LastModifiedTable;
pub use representation_cache::{MAX_SHORT_DOCUMENT, RepresentationCache};
pub use visibility_mask_cache::VisibilityMaskCache;

use crate::{
    agent::Agent,
    fault::{Fault, FaultCode, Result},
    registry::EmbeddedRegistry,
    resolver::UriResolver,
    search, signing,
    values::Glob,
};
use agent_descriptor::AgentDescriptorHandler;
use agent_document::AgentDocumentHandler;
use agent_list::AgentListHandler;
use caller_pages::CallerPageHandler;
use card::AgentCardHandler;
use conditional_response::{Representation, is_read_method};
use framework_discovery::{FrameworkDiscoveryHandler, redirect_former_path};
use intent_resolution::IntentResolutionHandler;
use name_resolution::NameResolutionHandler;
use openapi::OpenApiHandler;
use publishing::PublishingHandler;
use serde_json::{Map, Value};
use std::{sync::Arc, time::Duration};
use visible_agent_search::VisibleAgentSearch;

/// How long a publisher waits until its agent is indexed. The agent is stored, and callable, before that.
const INDEX_WAIT: Duration = Duration::from_secs(1);

/// Serves directory requests.
#[derive(Debug)]
pub struct AgentDirectory {
    /// Search index of the agents.
    pub index: Arc<search::SearchIndex>,
    /// What callers see in the index, under this configuration.
    pub masks: VisibilityMaskCache,
    /// Dates of the representations that were served.
    pub last_modified: LastModifiedTable,
    /// Representations of long documents.
    pub representations: RepresentationCache,
    /// Progress of the index; `None` if nothing waits for it.
    pub index_progress: Option<IndexProgress>,
    /// Registry that stores published agents; `None` if publishing is disabled.
    pub registry: Option<Arc<EmbeddedRegistry>>,
    /// Key that signs cards; `None` if cards are unsigned.
    pub signing_key: Option<Arc<signing::SigningKey>>,
    /// Credentials that the gateway accepts, for the documents that describe calls.
    pub credentials: AcceptedCredentials,
    /// What callers rely on beyond one call, for the documents that describe calls.
    pub conventions: CallConventions,
    /// JSON Schema of agents' documents; `None` if it is not published.
    pub metadata_schema: Option<Arc<Value>>,
    /// Resolver of `agent://` names; `None` if it is disabled.
    pub resolver: Option<Arc<UriResolver>>,
    /// Configuration.
    pub config: DirectoryConfig,
}

impl AgentDirectory {
    /// Returns the globs of agents that are discoverable without a credential.
    pub fn public_agents(&self) -> &[Glob] {
        &self.config.public_agents
    }

    /// Returns whether the pages for callers are on.
    pub fn has_caller_pages(&self) -> bool {
        self.config.caller_pages
    }

    /// Returns the configured base URL of the gateway.
    pub fn base_url(&self) -> Option<&str> {
        self.config.external_url.as_deref()
    }

    /// Redacts the addresses of a card that the agent itself returned, as those of the documents about it.
    pub fn redact_agent_card(&self, agent: &Agent, base_url: &str, card: &mut Value) {
        agent_document::redact_agent_card(agent, base_url, self.config.advertised_endpoints, card);
    }

    /// Replaces what a card says of credentials by what callers of the agent need here.
    pub fn set_card_security(&self, agent: &Agent, card: &mut Map<String, Value>) {
        card::set_card_security(agent, &self.credentials, card);
    }

    /// Replaces what an agent's own OpenAPI document says of credentials by what callers of the agent need here.
    pub fn set_openapi_security(&self, agent: &Agent, document: &mut Map<String, Value>) {
        openapi::set_openapi_security(agent, &self.credentials, document);
    }

    /// Serves a call.
    ///
    /// # Errors
    /// The fault to respond with.
    pub async fn respond(&self, call: DirectoryCall<'_>) -> Result<DirectoryResponse> {
        if !call.request.allowed_methods().contains(call.method) {
            let message = format!("The method is not allowed here (allowed: {})", call.request.allow_header());
            return Err(
                Fault::new(FaultCode::MethodNotAllowed, message).with_header("Allow", call.request.allow_header())
            );
        }
        match call.request {
            DirectoryRequest::Agents if !is_read_method(call.method) => {
                self.respond_when_indexed(self.publishing().publish_agent(&call).await?).await
            }
            DirectoryRequest::Agent if !is_read_method(call.method) => {
                self.respond_when_indexed(self.publishing().change_agent(&call).await?).await
            }
            DirectoryRequest::Search => self.agent_lists().search_agents(&call),
            DirectoryRequest::ResolveIntent => self.intent_resolution().resolve_intent(&call),
            DirectoryRequest::ResolveName => self.name_resolution().resolve_name(&call).await,
            DirectoryRequest::FrameworkListRedirect | DirectoryRequest::FrameworkAgentRedirect => {
                Ok(redirect_former_path(&call))
            }
            DirectoryRequest::CallerPages => self.caller_pages().list_agents(&call),
            DirectoryRequest::CallerPage => self.caller_pages().show_agent(&call),
            DirectoryRequest::CallerPageAsset => self.caller_pages().serve_asset(&call),
            _ => {
                let representation = self.representation(&call).await?;
                Ok(representation.into_response(
                    &call,
                    self.config.max_age.get(),
                    &self.credentials,
                    &self.last_modified,
                ))
            }
        }
    }

    /// Returns the response to a write, once the index contains the change.
    async fn respond_when_indexed(&self, response: DirectoryResponse) -> Result<DirectoryResponse> {
        if let Some(index_progress) = &self.index_progress {
            index_progress.wait_until_indexed(INDEX_WAIT).await;
        }
        Ok(response)
    }

    /// Builds the representation for a request that only reads.
    async fn representation(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        match call.request {
            DirectoryRequest::Agents => self.agent_lists().list_agents(call),
            DirectoryRequest::WellKnownAgents => self.agent_lists().well_known_agents(call),
            DirectoryRequest::Agent => {
                let documents = self.agent_documents();
                match documents.published_document(call).await? {
                    Some(published) => Ok(published),
                    None => self.representations.get_or_make(call, || documents.served_document(call)),
                }
            }
            DirectoryRequest::History => self.publishing().document_history(call).await,
            // A client that states an A2A version expects the card: earlier versions of A2A had it at this path.
            DirectoryRequest::Descriptor if call.headers.contains_key(media_types::A2A_VERSION) => {
                self.agent_card(call)
            }
            DirectoryRequest::WellKnownDescriptor if call.headers.contains_key(media_types::A2A_VERSION) => {
                self.cards().well_known_card(call)
            }
            DirectoryRequest::CardOrDescriptor if !agent_descriptor::is_requested(call.headers) => {
                self.agent_card(call)
            }
            DirectoryRequest::WellKnownCardOrDescriptor if !agent_descriptor::is_requested(call.headers) => {
                self.cards().well_known_card(call)
            }
            DirectoryRequest::Descriptor | DirectoryRequest::CardOrDescriptor => {
                self.representations.get_or_make(call, || self.descriptors().agent_descriptor(call))
            }
            DirectoryRequest::WellKnownDescriptor | DirectoryRequest::WellKnownCardOrDescriptor => {
                self.descriptors().well_known_descriptor(call)
            }
            DirectoryRequest::Card => self.agent_card(call),
            DirectoryRequest::WellKnownCard => self.cards().well_known_card(call),
            DirectoryRequest::FrameworkCard => self.cards().framework_card(call, &self.framework_discovery()),
            DirectoryRequest::AgentOpenApi => {
                self.representations.get_or_make(call, || self.openapi_documents().agent_openapi(call))
            }
            DirectoryRequest::GatewayOpenApi => self.openapi_documents().gateway_openapi(call),
            DirectoryRequest::FrameworkList => self.framework_discovery().list_agents(call),
            DirectoryRequest::FrameworkAgent => {
                self.representations.get_or_make(call, || self.framework_discovery().agent_document(call))
            }
            DirectoryRequest::Jwks => self.jwks(call),
            DirectoryRequest::MetadataSchema => self.metadata_schema(call),
            _ => Err(Fault::new(FaultCode::NotFound, "There is nothing at this path")),
        }
    }

    fn agent_card(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        self.representations.get_or_make(call, || self.cards().agent_card(call))
    }

    fn search(&self) -> VisibleAgentSearch<'_> {
        VisibleAgentSearch { index: &self.index, masks: &self.masks }
    }

    fn agent_lists(&self) -> AgentListHandler<'_> {
        AgentListHandler { search: self.search(), advertised_endpoints: self.config.advertised_endpoints }
    }

    fn agent_documents(&self) -> AgentDocumentHandler<'_> {
        AgentDocumentHandler {
            registry: self.registry.as_deref(),
            advertised_endpoints: self.config.advertised_endpoints,
        }
    }

    fn descriptors(&self) -> AgentDescriptorHandler<'_> {
        AgentDescriptorHandler {
            search: self.search(),
            credentials: &self.credentials,
            conventions: &self.conventions,
            config: &self.config,
        }
    }

    fn cards(&self) -> AgentCardHandler<'_> {
        AgentCardHandler {
            search: self.search(),
            credentials: &self.credentials,
            signing_key: self.signing_key.as_deref(),
            config: &self.config,
        }
    }

    fn openapi_documents(&self) -> OpenApiHandler<'_> {
        OpenApiHandler {
            credentials: &self.credentials,
            conventions: &self.conventions,
            config: &self.config,
            metadata_schema: self.metadata_schema.as_deref(),
        }
    }

    fn framework_discovery(&self) -> FrameworkDiscoveryHandler<'_> {
        FrameworkDiscoveryHandler { search: self.search(), conventions: &self.conventions, config: &self.config }
    }

    fn caller_pages(&self) -> CallerPageHandler<'_> {
        CallerPageHandler {
            search: self.search(),
            credentials: &self.credentials,
            conventions: &self.conventions,
            config: &self.config,
        }
    }

    fn intent_resolution(&self) -> IntentResolutionHandler<'_> {
        IntentResolutionHandler { search: self.search(), config: &self.config }
    }

    fn name_resolution(&self) -> NameResolutionHandler<'_> {
        NameResolutionHandler { resolver: self.resolver.as_deref() }
    }

    fn publishing(&self) -> PublishingHandler<'_> {
        PublishingHandler { registry: self.registry.as_deref() }
    }

    /// Returns the keys that sign cards; an empty set if cards are unsigned.
    fn jwks(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        let media = media_types::negotiate(call.headers, media_types::JWK_SET_MEDIA_TYPES)?;
        let keys = self.signing_key.as_ref().map_or_else(|| serde_json::json!({"keys": []}), |signer| signer.jwks());
        Representation::json(media, &keys)
    }

    /// Returns the JSON Schema of agents' documents.
    fn metadata_schema(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        let media = media_types::negotiate(call.headers, media_types::SCHEMA_MEDIA_TYPES)?;
        let not_published = || Fault::new(FaultCode::NotFound, "The schema of agent documents is not published here");
        Representation::json(media, &**self.metadata_schema.as_ref().ok_or_else(not_published)?)
    }
}

#[cfg(test)]
mod tests;
