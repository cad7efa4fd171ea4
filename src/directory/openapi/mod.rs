//! OpenAPI 3.1 documents: one for each agent, built from its operations, and the gateway's own, built from the table of
//! its paths. Both describe failures by the one table of codes.

mod agent_openapi;
mod gateway_calls;
mod gateway_openapi;
mod operation_info;
mod own_security;
mod schema_relocation;
mod shared_components;

pub(super) use agent_openapi::schema_name;
pub(super) use own_security::set_openapi_security;

use super::{
    AcceptedCredentials, CallConventions, DirectoryCall, DirectoryConfig, conditional_response::Representation,
    media_types,
};
use crate::fault::Result;
use agent_openapi::AgentOpenApi;
use gateway_openapi::GatewayOpenApi;
use serde_json::Value;

/// Serves OpenAPI documents.
pub(super) struct OpenApiHandler<'a> {
    pub(super) credentials: &'a AcceptedCredentials,
    pub(super) conventions: &'a CallConventions,
    pub(super) config: &'a DirectoryConfig,
    /// JSON Schema of agents' documents; `None` if it is not published.
    pub(super) metadata_schema: Option<&'a Value>,
}

impl OpenApiHandler<'_> {
    /// `/agents/{id}/openapi.json`.
    pub(super) fn agent_openapi(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        let media = media_types::negotiate(call.headers, media_types::OPENAPI_MEDIA_TYPES)?;
        let agent = call.requested_agent()?;
        let endpoints = self.config.advertised_endpoints;
        let document =
            AgentOpenApi::new(&agent, call.base_url, endpoints, self.credentials, self.conventions).build()?;
        Representation::json(media, &document)
    }

    /// `/openapi.json`.
    pub(super) fn gateway_openapi(&self, call: &DirectoryCall<'_>) -> Result<Representation> {
        let media = media_types::negotiate(call.headers, media_types::OPENAPI_MEDIA_TYPES)?;
        let builder = GatewayOpenApi {
            base_url: call.base_url,
            credentials: self.credentials,
            conventions: self.conventions,
            config: self.config,
            metadata_schema: self.metadata_schema,
        };
        Representation::json(media, &builder.build()?)
    }
}
