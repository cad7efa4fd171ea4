//! The path of a call, and the other front ends: each folder is one of them. `request_handler` runs the steps of the
//! crate's documentation in order; `admission` holds every check, and `exchange` writes every response.

mod a2a_config;
mod admission;
mod api;
mod background;
mod batch_call;
mod bridge;
mod call;
mod call_error;
mod call_handler;
mod call_id;
mod call_parameters;
mod call_stats;
mod caller_connection;
mod caller_identity;
mod content_negotiation;
mod cors;
mod delegation;
mod deprecation_headers;
mod directory_handler;
mod exchange;
mod explain;
mod fault_page;
mod forwarded_query;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod gateway_state;
mod header_names;
mod openai;
mod operation_path;
mod operator_call;
mod path_router;
mod pipeline;
mod prefer;
mod refused_json_rpc;
mod request_handler;
mod request_summary;
mod requested_version;
mod response;
mod route;
mod route_rule;
mod route_summary;
mod subrequest;
mod tasks;
mod upstream;
pub mod websocket;

pub use a2a_config::A2aConfig;
pub use admission::{ShadowRules, may_call};
pub use api::{
    ApiConfig, ApiHostRule, ApiHosts, ApiPreset, ApiRouteConfig, ApiSessionConfig, OpenApiLocation, OpenApiSource,
    OpenApiSources, OpenApiSourcesBuilder, OpenRoute, api_config_problems, open_routes_beside_restrictions,
};
pub use bridge::MqttBridge;
pub use caller_connection::CallerConnection;
pub use caller_identity::CallerTokenSigner;
pub use cors::{CorsConfig, CorsPolicy, PairingConfig};
pub use delegation::{DelegationConfig, DelegationPolicy};
pub use explain::{DryRun, ExplainRequest, explain_call};
pub use gateway_state::{ConfigSnapshot, Gateway};
pub use openai::OpenAiConfig;
pub use operator_call::{OperatorCall, OperatorReply, call_as_operator};
pub use response::ErrorDetails;
pub use route::{AgentRouteCompiler, Route};
pub use route_rule::{CallerAuthentication, QueryPolicy, RouteRule};

#[cfg(test)]
mod tests;
