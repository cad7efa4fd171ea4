//! Idempotency keys that gateways share, in Redis and in PostgreSQL: the contract of the store with several gateways of
//! this process, and gateways of their own processes under failures.

mod counting_agent;
mod failures;
mod kills;
mod store;

use super::support::state_server::StateServer;
use crate::support::gateway::{GatewayBuilder, gateway};

/// The servers that may hold the keys.
async fn servers() -> Vec<StateServer> {
    vec![StateServer::redis().await, StateServer::postgres().await]
}

/// A gateway of its own process, with this state and this section `idempotency`.
fn process(state: &serde_json::Value, idempotency: &str) -> GatewayBuilder {
    gateway().section(&format!(
        "state: {state}\nidempotency: {idempotency}\nlimits: {{per_address: null, per_caller: null}}\n"
    ))
}
