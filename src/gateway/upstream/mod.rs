//! Calls to agents (step 11): what the agent receives, and the caller's body on its way to the agent.

mod body_pump;
mod upstream_request;

pub(super) use body_pump::BodyPump;
pub(super) use upstream_request::{
    OutgoingRequest, UpstreamHead, UpstreamTarget, api_gateway_headers, build_gateway_headers, gateway_headers,
    number_idempotency_key, send_upstream, send_with_body, set_json_headers,
};
