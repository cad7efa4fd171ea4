//! Idempotency keys that gateways share, in Redis and in PostgreSQL: the contract of the store with several gateways of
//! this process, and gateways of their own processes under failures.

mod store;

use super::support::state_server::StateServer;

/// The servers that may hold the keys.
async fn servers() -> Vec<StateServer> {
    vec![StateServer::redis().await]
}
