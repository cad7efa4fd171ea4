//! What a broker connection depends on: the settings that agents share, and the address policy.

use crate::{mqtt_client::BrokerAddress, net::AddressPolicy, transport::config::UpstreamTlsConfig, values::SecretRef};
use arc_swap::ArcSwap;
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

/// The key of a broker connection: agents with equal keys share the connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct BrokerKey {
    pub(super) address: BrokerAddress,
    pub(super) username: Option<SecretRef>,
    pub(super) password: Option<SecretRef>,
    pub(super) tls: Option<UpstreamTlsConfig>,
    pub(super) keep_alive: Duration,
    /// The timeout of each step of connecting.
    pub(super) connect_timeout: Duration,
}

/// The address policy in force, with notifications of changes.
#[derive(Debug)]
pub(super) struct PolicyWatch {
    pub(super) current: ArcSwap<AddressPolicy>,
    pub(super) changed: watch::Sender<()>,
}

impl PolicyWatch {
    pub(super) fn new(policy: Arc<AddressPolicy>) -> Self {
        Self { current: ArcSwap::new(policy), changed: watch::channel(()).0 }
    }

    /// Replaces the policy, and notifies the connections.
    pub(super) fn set(&self, policy: Arc<AddressPolicy>) {
        self.current.store(policy);
        self.changed.send_replace(());
    }
}
