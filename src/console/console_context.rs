//! What the pages read.

use crate::{
    admin::AdminState,
    config::{GatewayConfig, SettingLocations},
    gateway::Gateway,
};
use std::{ops::Deref, sync::Arc, time::SystemTime};
use tokio::runtime::Handle;

/// What the console is built from.
pub struct ConsoleServices {
    /// The gateway.
    pub gateway: Arc<Gateway>,
    /// The state and the actions of the admin listener.
    pub admin: Arc<dyn AdminState>,
    /// The configuration in force.
    pub source: Arc<dyn ConsoleSource>,
    /// The runtime of calls, where stores, issuers and agents are asked.
    pub calls: Handle,
}

/// What only the assembly of the gateway knows.
pub trait ConsoleSource: Send + Sync + 'static {
    /// Returns the configuration in force.
    fn config_in_force(&self) -> Arc<ConfigInForce>;
}

/// A configuration that is in force.
pub struct ConfigInForce {
    /// The settings.
    pub config: GatewayConfig,
    /// Where they are written.
    pub locations: SettingLocations,
    /// The name of the file.
    pub file_name: String,
    /// SHA-256 of the file.
    pub file_digest: Option<String>,
    /// When they were put in force.
    pub loaded_at: SystemTime,
    /// The sections whose changed settings take effect at the next start only.
    pub waiting_for_restart: Vec<&'static str>,
}

/// State that every page has.
#[derive(Clone)]
pub(super) struct ConsoleContext(Arc<ConsoleServices>);

impl ConsoleContext {
    pub(super) fn new(services: ConsoleServices) -> Self {
        Self(Arc::new(services))
    }
}

impl Deref for ConsoleContext {
    type Target = ConsoleServices;

    fn deref(&self) -> &ConsoleServices {
        &self.0
    }
}
