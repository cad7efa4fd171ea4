//! Shared by the integration tests: the real binary on a free port, agents with scripted behaviour, servers of other
//! protocols, and checks of responses.

pub mod agent;
pub mod certs;
pub mod gateway;
pub mod gateway_response;
pub mod issuer;
pub mod ports;
pub mod servers;
pub mod site;
pub mod websocket;

use std::time::Duration;

/// How long a test waits for a condition, a message or a response before it fails.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits until `condition` holds.
pub async fn eventually<F: AsyncFnMut() -> bool>(description: &str, mut condition: F) {
    let deadline = tokio::time::Instant::now() + TEST_TIMEOUT;
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "did not happen in time: {description}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
