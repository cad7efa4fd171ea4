//! Agents over MQTT: known, listed and found, but not called. There is no way to a broker here yet.

use super::settings::{Bounds, Settings};
use crate::{
    agent::Endpoint,
    fault::{Code, Fault},
};
use http::uri::PathAndQuery;
use std::sync::Arc;

/// An agent that takes its calls from a broker.
#[derive(Debug)]
pub struct Topic {
    pub(super) bounds: Bounds,
    pub(super) path: PathAndQuery,
}

impl Topic {
    /// The topic of `endpoint`, if that is one.
    pub(super) fn of(endpoint: &Endpoint, settings: &Settings) -> Option<Arc<Self>> {
        let Endpoint::Mqtt(uri) = endpoint else { return None };
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Some(Arc::new(Self { bounds: Bounds::from(&settings.timeouts), path }))
    }
}

/// What a call to such an agent comes to.
pub(super) fn not_called() -> Fault {
    Fault::new(Code::AgentUnavailable, "Agents over MQTT cannot be called by this version.")
}
