//! Agents over MQTT: known, listed and found, but not called. There is no way to a broker here yet.

use super::{Bounds, Reply, Request, Settings, Way};
use crate::fault::{Code, Fault};
use std::sync::Arc;
use tokio::time::Instant;

#[derive(Debug)]
struct Unsupported(Bounds);

/// A way that leads nowhere.
pub(super) fn unsupported(settings: &Settings) -> Arc<dyn Way> {
    Arc::new(Unsupported(Bounds::from(&settings.timeouts)))
}

#[async_trait::async_trait]
impl Way for Unsupported {
    fn bounds(&self) -> &Bounds {
        &self.0
    }

    async fn call(&self, _: Request<'_>, _: Instant) -> Result<Reply, Fault> {
        Err(Fault::new(Code::AgentUnavailable, "Agents over MQTT cannot be called by this version."))
    }
}
