//! Shared by the integration tests: the real binary on a free port, agents with scripted behaviour, servers of other
//! protocols, and checks of responses.

pub mod agent;
pub mod browser;
pub mod certs;
pub mod closed_port;
pub mod cluster;
pub mod gateway;
pub mod gateway_response;
pub mod issuer;
pub mod otlp_receiver;
pub mod ports;
pub mod servers;
pub mod site;
pub mod websocket;

use std::time::Duration;

/// How long a test waits for a condition, a message or a response before it fails.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Waits until `condition` holds.
pub async fn eventually<F: AsyncFnMut() -> bool>(description: &str, condition: F) {
    eventually_within(TEST_TIMEOUT, description, condition).await;
}

/// Waits until `condition` holds, for at most `limit`.
pub async fn eventually_within<F: AsyncFnMut() -> bool>(limit: Duration, description: &str, mut condition: F) {
    let deadline = tokio::time::Instant::now() + limit;
    while !condition().await {
        assert!(tokio::time::Instant::now() < deadline, "did not happen in time: {description}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until a number that only grows has stopped growing, and returns it.
pub async fn settled(description: &str, mut number: impl FnMut() -> usize) -> usize {
    let mut latest = (number(), tokio::time::Instant::now());
    eventually(description, async || {
        let now = number();
        if now != latest.0 {
            latest = (now, tokio::time::Instant::now());
        }
        now > 0 && latest.1.elapsed() > Duration::from_millis(300)
    })
    .await;
    latest.0
}
