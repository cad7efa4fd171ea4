//! The agent's own API below `/agents/{id}/api`, or at a host name of its own: requests that the operator allows pass to
//! the agent as they are, with authentication, limits and logs as for calls. What passes is decided by
//! [`ApiRouteTable`](route_table::ApiRouteTable) alone.

mod api_handler;
mod api_hosts;
mod api_path;
mod api_reply;
mod api_target;
mod config;
mod json_url_rewrite;
mod path_pattern;
mod preset;
mod route_table;
mod session_key;
mod url_mapping;

pub(super) use api_handler::{admission_request, find_api, handle_api_request};
pub use api_hosts::{ApiHostRule, ApiHosts};
pub use api_target::api_config_problems;
pub(super) use api_target::{AgentApi, AgentApiBuilder};
pub(super) use config::protocol_without_api;
pub use config::{ApiConfig, ApiRouteConfig, ApiSessionConfig};
pub use preset::ApiPreset;
