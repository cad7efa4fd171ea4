//! Publication of what a command revokes, for the gateways that share a state.

use crate::{
    app,
    auth::{NewRevocation, publish_revocations},
    config::GatewayConfig,
};
use anyhow::anyhow;
use std::time::Duration;

/// Publishes revocations, where the configuration has a shared state; `revocations_at` returns them for the time since
/// the Unix epoch by the clock of the gateways. Returns whether there is such a state.
///
/// # Errors
/// They are not published, or not all of them.
pub(super) fn publish(
    config: Option<&GatewayConfig>,
    revocations_at: impl FnOnce(Duration) -> Vec<NewRevocation>,
) -> anyhow::Result<bool> {
    let Some(config) = config.filter(|config| config.state.is_some()) else { return Ok(false) };
    app::build_runtime()?.block_on(async {
        let state = app::open_shared_state_of_command(config).await.map_err(|problems| anyhow!(problems.join("; ")))?;
        let Some(state) = state else { return Ok(false) };
        let published = publish_revocations(&state, &revocations_at(state.server_time())).await;
        // The command counts as a gateway until it leaves.
        state.leave().await;
        published.map(|()| true).map_err(|why| anyhow!(why))
    })
}
