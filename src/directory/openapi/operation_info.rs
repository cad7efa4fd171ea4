//! Table of the OpenAPI operations of directory requests: the id, summary, schemas and parameters of each.

use super::super::DirectoryRequest;
use http::Method;

/// OpenAPI description of one method of a directory request.
pub(super) struct OperationInfo {
    pub(super) title: &'static str,
    /// Names of the schemas of the request body and the response body.
    pub(super) request_schema: Option<&'static str>,
    pub(super) response_schema: Option<&'static str>,
    pub(super) success_status: u16,
    pub(super) parameters: &'static [&'static str],
}

const LIST_PARAMETERS: &[&str] =
    &["capabilities", "tags", "supported_languages", "status", "q", "top", "page", "per_page"];
const FRAMEWORK_PARAMETERS: &[&str] = &["q", "tag", "view", "include", "page", "per_page"];
const CARD_PARAMETERS: &[&str] = &["version", "A2A-Version"];

/// Returns the request's part of an operationId. Clients generate code from these: after the first release they never
/// change.
pub(super) fn operation_id(request: DirectoryRequest) -> &'static str {
    match request {
        DirectoryRequest::Agents => "agents",
        DirectoryRequest::Search => "search",
        DirectoryRequest::ResolveIntent => "resolveintent",
        DirectoryRequest::ResolveName => "resolvename",
        DirectoryRequest::Agent => "agent",
        DirectoryRequest::History => "agenthistory",
        DirectoryRequest::Descriptor => "agentdescriptor",
        DirectoryRequest::CardOrDescriptor => "agentcardordescriptor",
        DirectoryRequest::Card => "agentcard",
        DirectoryRequest::AgentOpenApi => "agentopenapi",
        DirectoryRequest::FrameworkList => "frameworkagents",
        DirectoryRequest::FrameworkAgent => "frameworkagent",
        DirectoryRequest::FrameworkListRedirect => "frameworkagentsredirect",
        DirectoryRequest::FrameworkAgentRedirect => "frameworkagentredirect",
        DirectoryRequest::WellKnownAgents => "wellknownagents",
        DirectoryRequest::WellKnownDescriptor => "gatewaydescriptor",
        DirectoryRequest::WellKnownCardOrDescriptor => "gatewaycardordescriptor",
        DirectoryRequest::WellKnownCard => "gatewaycard",
        DirectoryRequest::FrameworkCard => "frameworkcard",
        DirectoryRequest::Jwks => "jwks",
        DirectoryRequest::GatewayOpenApi => "gatewayopenapi",
        DirectoryRequest::MetadataSchema => "metadataschema",
    }
}

/// Describes one method of a request.
pub(super) fn operation_info(request: DirectoryRequest, method: &Method) -> OperationInfo {
    let without_body = |title, response, parameters| OperationInfo {
        title,
        request_schema: None,
        response_schema: Some(response),
        success_status: 200,
        parameters,
    };
    let with_body = |title, request, response| OperationInfo {
        title,
        request_schema: Some(request),
        response_schema: Some(response),
        success_status: 200,
        parameters: &[],
    };
    match (request, method.as_str()) {
        (DirectoryRequest::Agents, "POST") => {
            with_body("Publishes an agent, or updates one of the caller's own.", "Document", "Document")
        }
        (DirectoryRequest::Agents, _) => without_body("Lists agents.", "Summaries", LIST_PARAMETERS),
        (DirectoryRequest::Search, _) => with_body("Searches for agents.", "Search", "Summaries"),
        (DirectoryRequest::ResolveIntent, _) => {
            with_body("Finds agents that fit an intent and a policy.", "Intent", "Resolution")
        }
        (DirectoryRequest::ResolveName, _) => {
            with_body("Resolves an agent:// name to an endpoint.", "Name", "Resolved")
        }
        (DirectoryRequest::Agent, "PUT") => {
            with_body("Publishes this agent, or replaces its document.", "Document", "Document")
        }
        (DirectoryRequest::Agent, "PATCH") => {
            with_body("Updates members of a document (RFC 7396).", "Patch", "Document")
        }
        (DirectoryRequest::Agent, "DELETE") => OperationInfo {
            title: "Removes a document.",
            request_schema: None,
            response_schema: None,
            success_status: 204,
            parameters: &[],
        },
        (DirectoryRequest::Agent, _) => without_body("The document of one agent.", "Document", &[]),
        (DirectoryRequest::History, _) => {
            without_body("The history of a document, for its publisher.", "History", &["top"])
        }
        (DirectoryRequest::Descriptor, _) => without_body("The descriptor of one agent in JSON-LD.", "Any", &[]),
        (DirectoryRequest::WellKnownDescriptor, _) => {
            without_body("The descriptor of the gateway, or of its only agent.", "Any", &[])
        }
        (DirectoryRequest::CardOrDescriptor, _) => {
            without_body("The A2A card of one agent, or its descriptor in JSON-LD.", "Any", CARD_PARAMETERS)
        }
        (DirectoryRequest::WellKnownCardOrDescriptor, _) => {
            without_body("The A2A card or the descriptor of the gateway, or of its only agent.", "Any", CARD_PARAMETERS)
        }
        (DirectoryRequest::Card, _) => without_body("The A2A card of one agent.", "Any", CARD_PARAMETERS),
        (DirectoryRequest::WellKnownCard, _) => {
            without_body("The A2A card of the gateway, or of its only agent.", "Any", CARD_PARAMETERS)
        }
        (DirectoryRequest::FrameworkCard, _) => without_body(
            "The A2A card of the gateway, or of its only agent, with the members of Agent Framework.",
            "Any",
            CARD_PARAMETERS,
        ),
        (DirectoryRequest::AgentOpenApi, _) => without_body("The OpenAPI document of one agent.", "Any", &[]),
        (DirectoryRequest::GatewayOpenApi, _) => without_body("This document.", "Any", &[]),
        (DirectoryRequest::FrameworkList, _) => {
            without_body("The list of agents for Agent Framework.", "FrameworkList", FRAMEWORK_PARAMETERS)
        }
        (DirectoryRequest::FrameworkAgent, _) => {
            without_body("The document of one agent for Agent Framework.", "FrameworkAgent", &["view", "include"])
        }
        (DirectoryRequest::FrameworkListRedirect | DirectoryRequest::FrameworkAgentRedirect, _) => OperationInfo {
            title: "Redirects to the well-known path.",
            request_schema: None,
            response_schema: None,
            success_status: 308,
            parameters: &[],
        },
        (DirectoryRequest::WellKnownAgents, _) => {
            without_body("The map from agents to their descriptors.", "Map", &["page", "per_page"])
        }
        (DirectoryRequest::Jwks, _) => without_body("The keys that sign cards, as a JWK Set.", "Any", &[]),
        (DirectoryRequest::MetadataSchema, _) => without_body("The JSON Schema of agents' documents.", "Any", &[]),
    }
}
