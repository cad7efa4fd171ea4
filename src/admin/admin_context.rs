//! What the handlers of the admin pages use.

use super::admin_state::AdminState;
use crate::telemetry::Metrics;
use std::sync::Arc;
use tokio::runtime::Handle;

/// State that every handler has.
#[derive(Clone)]
pub(super) struct AdminContext {
    pub(super) state: Arc<dyn AdminState>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) calls: Handle,
}
