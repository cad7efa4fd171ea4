//! What every test needs: the real binary on a free port, agents that behave or do not, and answers to look at.

pub mod agent;
pub mod certs;
pub mod gateway;
pub mod issuer;
pub mod mosquitto;
pub mod oidc;
pub mod postgres;
pub mod reply;
pub mod served;
pub mod site;
pub mod synapse;
pub mod websocket;
pub mod worker;

use std::time::Duration;

/// How long anything may take before a test says that it does not happen.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until `holds` does.
pub async fn eventually<F: AsyncFnMut() -> bool>(what: &str, mut holds: F) {
    let until = tokio::time::Instant::now() + PATIENCE;
    while !holds().await {
        assert!(tokio::time::Instant::now() < until, "this did not happen in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
