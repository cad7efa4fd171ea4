//! Calls to agents (step 11): what the agent receives, and the caller's body on its way to the agent.

mod agent_headers;
mod body_pump;
mod upstream_request;

pub(super) use agent_headers::{gateway_headers, number_idempotency_key, set_json_headers};
pub(super) use body_pump::BodyPump;
pub(super) use upstream_request::{OutgoingRequest, UpstreamHead, send_upstream, send_with_body};
