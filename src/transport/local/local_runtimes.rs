//! The runtimes that registered on this machine, with a lease or with a descriptor.

use super::{
    local_runtime_config::LocalRuntimeConfig,
    runtime_folder::RuntimeAddress,
    runtime_lease::{LeaseGrant, LeaseRequest, RuntimeLeases, ValidLease},
};
use crate::{
    agent::AgentId,
    fault::{Fault, FaultCode},
};
use arc_swap::ArcSwapOption;
use std::sync::Arc;

/// Every registered runtime. It outlives every configuration.
#[derive(Debug, Default)]
pub(in crate::transport) struct LocalRuntimes {
    config: ArcSwapOption<LocalRuntimeConfig>,
    leases: RuntimeLeases,
}

impl LocalRuntimes {
    pub(in crate::transport) fn set_config(&self, config: Option<LocalRuntimeConfig>) {
        self.config.store(config.map(Arc::new));
    }

    /// Whether any runtime may register.
    pub(super) fn is_configured(&self) -> bool {
        self.config.load().is_some()
    }

    /// Grants or renews a lease. Blocks while it checks the socket.
    ///
    /// # Errors
    /// No runtime may register, or the socket is not trusted.
    pub(in crate::transport) fn grant_lease(&self, name: &str, request_body: &[u8]) -> Result<LeaseGrant, Fault> {
        let refuse = |reason: String| Fault::new(FaultCode::InvalidInput, reason);
        let not_configured = || {
            Fault::new(
                FaultCode::NotFound,
                "No runtime may register: the configuration has no section 'local_runtimes'",
            )
        };
        let config = self.config.load_full().ok_or_else(not_configured)?;
        let name: AgentId = name.parse().map_err(refuse)?;
        let request: LeaseRequest = serde_json::from_slice(request_body)
            .map_err(|error| refuse(format!("The body is not a valid lease ({error})")))?;
        let ValidLease { address, ttl } = request.validate(config.max_lease)?;
        config
            .runtime_folder()
            .verify_socket(&address.socket)
            .map_err(|error| refuse(format!("The socket cannot be used: {error}")))?;
        self.leases.grant(&name, address, ttl)
    }

    /// Ends a lease. Returns whether there was one.
    pub(in crate::transport) fn end_lease(&self, name: &str) -> bool {
        self.leases.remove(name)
    }

    /// Returns the address of a runtime that is registered now.
    ///
    /// # Errors
    /// `AgentUnavailable` where it is not registered, or its files are not trusted.
    pub(super) async fn find_runtime(&self, name: &AgentId) -> Result<RuntimeAddress, Fault> {
        let Some(config) = self.config.load_full() else {
            return Err(not_running_fault("the section 'local_runtimes' was removed"));
        };
        let (leased, name) = (self.leases.find(name.as_str()), name.clone());
        let lookup = tokio::task::spawn_blocking(move || match leased {
            Some(address) => config.runtime_folder().verify_socket(&address.socket).map(|()| address),
            None => config.runtime_folder().read_descriptor(&name),
        });
        lookup
            .await
            .map_err(|_| not_running_fault("the lookup task failed"))?
            .map_err(|reason| not_running_fault(&reason))
    }
}

/// The fault of a call to a runtime that is not registered.
pub(super) fn not_running_fault(reason: &str) -> Fault {
    Fault::new(FaultCode::AgentUnavailable, "The agent is not running").with_detail(reason)
}
