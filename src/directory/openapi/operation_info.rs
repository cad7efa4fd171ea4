//! Table of the OpenAPI operations of directory requests: the id, summary, schemas, media types and parameters of each.

use super::{
    super::{
        DirectoryRequest,
        agent_descriptor::DESCRIPTOR_MEDIA_TYPES,
        agent_document::DOCUMENT_MEDIA_TYPES,
        agent_list,
        card::CARD_MEDIA_TYPES,
        framework_discovery,
        media_types::{JSON, JWK_SET_MEDIA_TYPES, OPENAPI_MEDIA_TYPES, SCHEMA_MEDIA_TYPES},
        publishing::{MAX_HISTORY, PATCH_MEDIA_TYPES, WRITE_MEDIA_TYPES},
        query_params::{MAX_OFFSET, MAX_PAGE},
    },
    shared_components::Parameter,
};
use http::Method;

/// OpenAPI description of one method of a directory request.
pub(super) struct OperationInfo {
    pub(super) title: &'static str,
    pub(super) request_body: Option<BodyInfo>,
    /// The body of a success; `None` without one.
    pub(super) response_body: Option<BodyInfo>,
    pub(super) success_status: u16,
    pub(super) parameters: &'static [Parameter],
}

/// A body: the name of its schema, and its media types.
#[derive(Clone, Copy)]
pub(super) struct BodyInfo {
    pub(super) schema: &'static str,
    pub(super) media_types: [&'static [&'static str]; 2],
}

impl BodyInfo {
    const fn new(schema: &'static str, media_types: &'static [&'static str]) -> Self {
        Self { schema, media_types: [media_types, &[]] }
    }

    const fn json(schema: &'static str) -> Self {
        Self::new(schema, &[JSON])
    }
}

const PAGE: Parameter = Parameter::number("page", "Number of the page.", MAX_PAGE);
const OFFSET: Parameter = Parameter::Number {
    name: "offset",
    description: "Number of entries before the first page.",
    min: 0,
    max: MAX_OFFSET,
};
const LIST_PARAMETERS: &[Parameter] = &[
    Parameter::Shared("capabilities"),
    Parameter::Shared("tags"),
    Parameter::Shared("supported_languages"),
    Parameter::Shared("status"),
    Parameter::Shared("q"),
    Parameter::number("top", "Maximum number of entries; there are no further pages.", agent_list::MAX_PER_PAGE),
    PAGE,
    OFFSET,
    Parameter::number("per_page", "Maximum number of entries on a page.", agent_list::MAX_PER_PAGE),
];
const MAP_PARAMETERS: &[Parameter] = &[
    PAGE,
    OFFSET,
    Parameter::number("per_page", "Maximum number of entries on a page.", agent_list::MAX_MAP_ENTRIES_PER_PAGE),
];
const FRAMEWORK_PARAMETERS: &[Parameter] = &[
    Parameter::Shared("q"),
    Parameter::Shared("tag"),
    Parameter::Shared("view"),
    Parameter::Shared("include"),
    PAGE,
    OFFSET,
    Parameter::number("per_page", "Maximum number of entries on a page.", framework_discovery::MAX_PER_PAGE),
];
const VIEW_PARAMETERS: &[Parameter] = &[Parameter::Shared("view"), Parameter::Shared("include")];
const CARD_PARAMETERS: &[Parameter] = &[Parameter::Shared("version"), Parameter::Shared("A2A-Version")];
const HISTORY_PARAMETERS: &[Parameter] = &[Parameter::number("top", "Maximum number of changes.", MAX_HISTORY)];
const WRITE_PARAMETERS: &[Parameter] = &[Parameter::Shared("If-Match"), Parameter::Shared("If-None-Match")];

/// A card, or a descriptor: which one depends on `Accept` and `A2A-Version`.
const CARD_OR_DESCRIPTOR: BodyInfo =
    BodyInfo { schema: "Any", media_types: [CARD_MEDIA_TYPES, DESCRIPTOR_MEDIA_TYPES] };
const CARD: BodyInfo = BodyInfo::new("Any", CARD_MEDIA_TYPES);

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
        DirectoryRequest::CallerPages => "callerpages",
        DirectoryRequest::CallerPage => "callerpage",
        DirectoryRequest::CallerPageAsset => "callerpageasset",
    }
}

/// Describes one method of a request.
pub(super) fn operation_info(request: DirectoryRequest, method: &Method) -> OperationInfo {
    let read = |title, response, parameters| OperationInfo {
        title,
        request_body: None,
        response_body: Some(response),
        success_status: 200,
        parameters,
    };
    let without_content =
        |title, success_status| OperationInfo { success_status, response_body: None, ..read(title, CARD, &[]) };
    let with_body = |title, request, response, parameters| OperationInfo {
        request_body: Some(request),
        ..read(title, BodyInfo::json(response), parameters)
    };
    let metadata = BodyInfo::new("AgentMetadata", WRITE_MEDIA_TYPES);
    let document = BodyInfo::new("Document", DOCUMENT_MEDIA_TYPES);
    match (request, method.as_str()) {
        (DirectoryRequest::Agents, "POST") => {
            with_body("Publishes an agent, or updates one of the caller's own.", metadata, "Document", &[])
        }
        (DirectoryRequest::Agents, _) => read("Lists agents.", BodyInfo::json("Summaries"), LIST_PARAMETERS),
        (DirectoryRequest::Search, _) => with_body("Searches for agents.", BodyInfo::json("Search"), "Summaries", &[]),
        (DirectoryRequest::ResolveIntent, _) => {
            with_body("Finds agents that fit an intent and a policy.", BodyInfo::json("Intent"), "Resolution", &[])
        }
        (DirectoryRequest::ResolveName, _) => {
            with_body("Resolves an agent:// name to an endpoint.", BodyInfo::json("Name"), "Resolved", &[])
        }
        (DirectoryRequest::Agent, "PUT") => {
            with_body("Publishes this agent, or replaces its document.", metadata, "Document", WRITE_PARAMETERS)
        }
        (DirectoryRequest::Agent, "PATCH") => {
            let patch = BodyInfo::new("Patch", PATCH_MEDIA_TYPES);
            with_body("Updates members of a document (RFC 7396).", patch, "Document", WRITE_PARAMETERS)
        }
        (DirectoryRequest::Agent, "DELETE") => {
            OperationInfo { parameters: WRITE_PARAMETERS, ..without_content("Removes a document.", 204) }
        }
        (DirectoryRequest::Agent, _) => read("The document of one agent.", document, &[]),
        (DirectoryRequest::History, _) => {
            let history = BodyInfo::json("History");
            read("The history of a document, for its publisher.", history, HISTORY_PARAMETERS)
        }
        (DirectoryRequest::Descriptor, _) => read(
            "The descriptor of one agent in JSON-LD; the A2A card for A2A-Version.",
            CARD_OR_DESCRIPTOR,
            CARD_PARAMETERS,
        ),
        (DirectoryRequest::WellKnownDescriptor, _) => read(
            "The descriptor of the gateway, or of its only agent; the A2A card for A2A-Version.",
            CARD_OR_DESCRIPTOR,
            CARD_PARAMETERS,
        ),
        (DirectoryRequest::CardOrDescriptor, _) => {
            read("The A2A card of one agent, or its descriptor in JSON-LD.", CARD_OR_DESCRIPTOR, CARD_PARAMETERS)
        }
        (DirectoryRequest::WellKnownCardOrDescriptor, _) => read(
            "The A2A card or the descriptor of the gateway, or of its only agent.",
            CARD_OR_DESCRIPTOR,
            CARD_PARAMETERS,
        ),
        (DirectoryRequest::Card, _) => read("The A2A card of one agent.", CARD, CARD_PARAMETERS),
        (DirectoryRequest::WellKnownCard, _) => {
            read("The A2A card of the gateway, or of its only agent.", CARD, CARD_PARAMETERS)
        }
        (DirectoryRequest::FrameworkCard, _) => read(
            "The A2A card of the gateway, or of its only agent, with the members of Agent Framework.",
            CARD,
            CARD_PARAMETERS,
        ),
        (DirectoryRequest::AgentOpenApi, _) => {
            read("The OpenAPI document of one agent.", BodyInfo::new("Any", OPENAPI_MEDIA_TYPES), &[])
        }
        (DirectoryRequest::GatewayOpenApi, _) => read("This document.", BodyInfo::new("Any", OPENAPI_MEDIA_TYPES), &[]),
        (DirectoryRequest::FrameworkList, _) => {
            let list = BodyInfo::new("FrameworkList", DOCUMENT_MEDIA_TYPES);
            read("The list of agents for Agent Framework.", list, FRAMEWORK_PARAMETERS)
        }
        (DirectoryRequest::FrameworkAgent, _) => {
            let agent = BodyInfo::new("FrameworkAgent", DOCUMENT_MEDIA_TYPES);
            read("The document of one agent for Agent Framework.", agent, VIEW_PARAMETERS)
        }
        (DirectoryRequest::FrameworkListRedirect | DirectoryRequest::FrameworkAgentRedirect, _) => {
            without_content("Redirects to the well-known path.", 308)
        }
        (DirectoryRequest::WellKnownAgents, _) => {
            read("The map from agents to their descriptors.", BodyInfo::json("Map"), MAP_PARAMETERS)
        }
        (DirectoryRequest::Jwks, _) => {
            read("The keys that sign cards, as a JWK Set.", BodyInfo::new("JwkSet", JWK_SET_MEDIA_TYPES), &[])
        }
        (DirectoryRequest::MetadataSchema, _) => {
            read("The JSON Schema of agents' documents.", BodyInfo::new("Any", SCHEMA_MEDIA_TYPES), &[])
        }
        // No document describes the pages for callers.
        (DirectoryRequest::CallerPages | DirectoryRequest::CallerPage | DirectoryRequest::CallerPageAsset, _) => {
            without_content("A page for callers.", 200)
        }
    }
}
