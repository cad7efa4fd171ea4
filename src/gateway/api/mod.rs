//! The agent's own API below `/agents/{id}/api`, or at a host name of its own: requests that the operator allows pass to
//! the agent as they are, with authentication, limits and logs as for calls. What passes is decided by
//! [`ApiRouteTable`](route_table::ApiRouteTable) alone.

mod agent_card;
mod api_authorization;
mod api_handler;
mod api_hosts;
mod api_path;
mod api_reply;
mod api_target;
mod config;
mod json_url_rewrite;
mod matched_route;
mod openapi;
mod openapi_servers;
mod path_pattern;
mod preset;
mod public_url;
mod route_table;
mod session_key;
mod url_mapping;
mod websocket;

pub(super) use api_authorization::{admission_request, contract_check, find_api};
pub(super) use api_handler::handle_api_request;
pub use api_hosts::{ApiHostRule, ApiHosts};
pub use api_target::api_config_problems;
pub(super) use api_target::{AgentApi, AgentApiBuilder};
pub(super) use config::protocol_without_api;
pub use config::{ApiConfig, ApiRouteConfig, ApiSessionConfig};
pub use openapi::{OpenApiLocation, OpenApiSource, OpenApiSources, OpenApiSourcesBuilder};
pub use preset::ApiPreset;
pub use route_table::{OpenRoute, open_routes_beside_restrictions};
