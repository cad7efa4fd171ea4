//! Directory of agents: discovery and publishing in each format that clients read. It builds responses; sessions,
//! authentication and the format of errors belong to `gateway`. It shows a caller only the agents that
//! [`AgentVisibility`] permits.

mod accepted_credentials;
mod address_redaction;
mod agent_descriptor;
mod agent_document;
mod agent_list;
mod agent_summary;
mod card;
mod conditional_response;
mod config;
mod directory_call;
mod directory_request;
mod framework_discovery;
mod index_progress;
mod intent_resolution;
mod json_object_builder;
mod media_types;
mod name_resolution;
mod openapi;
mod publishing;
mod query_params;
mod request_body;
mod search_filters;

pub use accepted_credentials::AcceptedCredentials;
pub use config::{DirectoryConfig, EndpointExposure, ProviderConfig};
pub use directory_call::{AgentVisibility, DirectoryCall, DirectoryResponse};
pub use directory_request::{DIRECTORY_PATHS, DirectoryRequest, INVOKE_PATHS, PIPELINE_PATH, TASK_PATHS};
pub use index_progress::IndexProgress;

use crate::{
    fault::{Fault, FaultCode, Result},
    registry::EmbeddedRegistry,
    resolver::UriResolver,
    search, signing,
    values::Glob,
};
use conditional_response::{Representation, is_read_method};
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// How long a publisher waits until its agent is indexed. The agent is stored, and callable, before that.
const INDEX_WAIT: Duration = Duration::from_secs(1);

/// Serves directory requests.
#[derive(Debug)]
pub struct AgentDirectory {
    /// Search index of the agents.
    pub index: Arc<search::SearchIndex>,
    /// Progress of the index; `None` if nothing waits for it.
    pub index_progress: Option<IndexProgress>,
    /// Registry that stores published agents; `None` if publishing is disabled.
    pub registry: Option<Arc<EmbeddedRegistry>>,
    /// Key that signs cards; `None` if cards are unsigned.
    pub signing_key: Option<Arc<signing::SigningKey>>,
    /// Credentials that the gateway accepts, for the documents that describe calls.
    pub credentials: AcceptedCredentials,
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

    /// Returns the configured base URL of the gateway.
    pub fn base_url(&self) -> Option<&str> {
        self.config.external_url.as_deref()
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
                self.respond_when_indexed(self.publish_agent(&call).await?).await
            }
            DirectoryRequest::Agent if !is_read_method(call.method) => {
                self.respond_when_indexed(self.change_agent(&call).await?).await
            }
            DirectoryRequest::Agent => self.agent_document(&call).await,
            DirectoryRequest::History => self.document_history(&call).await,
            DirectoryRequest::Search => self.search_agents(&call),
            DirectoryRequest::ResolveIntent => self.resolve_intent(&call),
            DirectoryRequest::ResolveName => self.resolve_name(&call).await,
            DirectoryRequest::FrameworkListRedirect | DirectoryRequest::FrameworkAgentRedirect => {
                Ok(self.framework_redirect(&call))
            }
            _ => Ok(self.respond_conditionally(&call, self.representation(&call)?)),
        }
    }

    /// Responds to a `GET` or `HEAD` with the representation, or with 304 if the caller has it.
    fn respond_conditionally(&self, call: &DirectoryCall<'_>, representation: Representation) -> DirectoryResponse {
        representation.into_response(call, self.config.max_age.get(), &self.credentials)
    }

    /// Returns the response to a write, once the index contains the change.
    async fn respond_when_indexed(&self, response: DirectoryResponse) -> Result<DirectoryResponse> {
        if let Some(index_progress) = &self.index_progress {
            index_progress.wait_until_indexed(INDEX_WAIT).await;
        }
        Ok(response)
    }

    /// Builds the representation for a request that only reads.
    fn representation(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        match call.request {
            DirectoryRequest::Agents => self.list_agents(call),
            DirectoryRequest::WellKnownAgents => self.well_known_agents(call),
            // A client that states an A2A version expects the card: earlier versions of A2A had it at this path.
            DirectoryRequest::Descriptor if call.headers.contains_key(conditional_response::A2A_VERSION) => {
                self.agent_card(call)
            }
            DirectoryRequest::WellKnownDescriptor if call.headers.contains_key(conditional_response::A2A_VERSION) => {
                self.well_known_card(call)
            }
            DirectoryRequest::Descriptor => self.agent_descriptor(call),
            DirectoryRequest::WellKnownDescriptor => self.well_known_descriptor(call),
            DirectoryRequest::Card => self.agent_card(call),
            DirectoryRequest::WellKnownCard => self.well_known_card(call),
            DirectoryRequest::AgentOpenApi => self.agent_openapi(call),
            DirectoryRequest::GatewayOpenApi => self.gateway_openapi(call),
            DirectoryRequest::FrameworkList => self.framework_list(call),
            DirectoryRequest::FrameworkAgent => self.framework_agent(call),
            DirectoryRequest::Jwks => self.jwks(call),
            DirectoryRequest::MetadataSchema => self.metadata_schema(call),
            _ => Err(Fault::new(FaultCode::NotFound, "There is nothing at this path")),
        }
    }

    /// Returns the keys that sign cards; an empty set if cards are unsigned.
    fn jwks(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        let media = media_types::negotiate(call.headers, &["application/jwk-set+json", media_types::JSON])?;
        let keys = self.signing_key.as_ref().map_or_else(|| serde_json::json!({"keys": []}), |signer| signer.jwks());
        Representation::json(media, &keys)
    }

    /// Returns the JSON Schema of agents' documents.
    fn metadata_schema(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        let media = media_types::negotiate(call.headers, &["application/schema+json", media_types::JSON])?;
        let not_published = || Fault::new(FaultCode::NotFound, "The schema of agent documents is not published here");
        Representation::json(media, &**self.metadata_schema.as_ref().ok_or_else(not_published)?)
    }
}

#[cfg(test)]
mod tests;
