//! Local runtimes: agents on this machine that register themselves (R51), with a descriptor in a private folder or
//! with a lease over the admin listener. Each call looks the address up, so that a stopped runtime disappears at once.
//! This module starts no runtime, and trusts no file that another user of the machine could have written.

mod runtime_folder;
mod runtime_lease;

pub use runtime_lease::LeaseGrant;
use runtime_lease::LeaseRequest;

use super::{Transport, TransportConfig, UpstreamCall, UpstreamReply, UpstreamTimeouts, http::HttpUpstreamClient};
use crate::{
    agent::{AgentEndpoint, AgentId},
    fault::{Fault, FaultCode},
    net::AddressPolicy,
    transport::HttpTarget,
    values::{ConfigDuration, ConfigPath, Glob},
};
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use runtime_folder::RuntimeAddress;
use runtime_lease::RuntimeLeases;
use std::sync::Arc;
use tokio::time::Instant;

/// Where runtimes on this machine register.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "Local")]
#[serde(deny_unknown_fields)]
pub struct LocalRuntimeConfig {
    /// The folder in which a runtime places its socket and its descriptor, NAME.json: an object of at most 64KiB with
    /// `socket`, a file of this folder (default: NAME.sock), and `path`, the HTTP path (default: /). The folder, the
    /// descriptor and the socket belong to the owner, are not links, and are not writable by other users.
    pub folder: ConfigPath,
    /// The numeric id of the user that owns the folder and its files. Default: the user that runs the gateway.
    #[serde(default)]
    pub owner_uid: Option<u32>,
    /// The longest lease that the admin listener grants (PUT /local/NAME); 1s to 24h. Default: 1h.
    #[serde(default = "default_max_lease")]
    pub max_lease: ConfigDuration,
}

fn default_max_lease() -> ConfigDuration {
    ConfigDuration::from_secs(3600)
}

impl LocalRuntimeConfig {
    /// Returns every value that cannot be used.
    pub fn problems(&self) -> Vec<String> {
        let is_valid = (1..=86_400).contains(&self.max_lease.get().as_secs());
        let max_lease = (!is_valid).then(|| format!("max_lease: is {} (must be 1s to 24h)", self.max_lease));
        max_lease
            .into_iter()
            .chain(runtime_folder::folder_problem(self).map(|problem| format!("folder: {problem}")))
            .collect()
    }
}

/// Every registered runtime. It outlives every configuration.
#[derive(Debug)]
pub(super) struct LocalRuntimes {
    config: ArcSwapOption<LocalRuntimeConfig>,
    leases: RuntimeLeases,
    /// A client of its own: each socket is verified here, and the address policy for documents does not apply.
    http: Arc<HttpUpstreamClient>,
}

impl LocalRuntimes {
    /// Requires a tokio runtime.
    pub(super) fn new() -> Arc<Self> {
        let any_path: Vec<Glob> = "/*".parse().into_iter().collect();
        let http = HttpUpstreamClient::new(Arc::new(AddressPolicy::default().with_unix_sockets(any_path)));
        Arc::new(Self { config: ArcSwapOption::default(), leases: RuntimeLeases::default(), http })
    }

    pub(super) fn set_config(&self, config: Option<LocalRuntimeConfig>) {
        self.config.store(config.map(Arc::new));
    }

    pub(super) fn idle_connections(&self) -> usize {
        self.http.idle_connections()
    }

    /// Builds the transport to the runtime called `name`, whether it is running or not.
    pub(super) fn build_transport(
        self: &Arc<Self>,
        name: &AgentId,
        settings: &TransportConfig,
    ) -> Result<Arc<dyn Transport>, Vec<String>> {
        if self.config.load().is_none() {
            return Err(vec![
                "endpoint: names a local runtime, but none may register (add a section 'local_runtimes')".into(),
            ]);
        }
        // A placeholder address, so that all other settings are validated now.
        self.http.build_target_at(&AgentEndpoint::Unix { socket: "/".into(), path: "/".to_owned() }, settings)?;
        let timeouts = UpstreamTimeouts::from(&settings.timeouts);
        let (local, name, settings) = (Arc::clone(self), name.clone(), settings.clone());
        Ok(Arc::new(LocalRuntimeTransport { local, name, settings, timeouts, last: Mutex::default() }))
    }

    /// Grants or renews a lease. Blocks while it checks the socket.
    ///
    /// # Errors
    /// No runtime may register, or the socket is not trusted.
    pub(super) fn grant_lease(&self, name: &str, request_body: &[u8]) -> Result<LeaseGrant, Fault> {
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
        let (address, ttl) = request.validate(&config)?;
        runtime_folder::verify_socket(&address.socket, &config)
            .map_err(|error| refuse(format!("The socket cannot be used: {error}")))?;
        self.leases.grant(&name, address, ttl)
    }

    /// Ends a lease. Returns whether there was one.
    pub(super) fn end_lease(&self, name: &str) -> bool {
        self.leases.remove(name)
    }

    async fn find_runtime(&self, name: &AgentId) -> Result<RuntimeAddress, Fault> {
        let Some(config) = self.config.load_full() else {
            return Err(not_running_fault("the section 'local_runtimes' was removed"));
        };
        let (leased, name) = (self.leases.find(name.as_str()), name.clone());
        let lookup = tokio::task::spawn_blocking(move || match leased {
            Some(address) => runtime_folder::verify_socket(&address.socket, &config).map(|()| address),
            None => runtime_folder::read_descriptor(&config, &name),
        });
        lookup
            .await
            .map_err(|_| not_running_fault("the lookup task failed"))?
            .map_err(|reason| not_running_fault(&reason))
    }
}

fn not_running_fault(reason: &str) -> Fault {
    Fault::new(FaultCode::AgentUnavailable, "The agent is not running").with_detail(reason)
}

/// The transport to one local runtime.
#[derive(Debug)]
struct LocalRuntimeTransport {
    local: Arc<LocalRuntimes>,
    name: AgentId,
    settings: TransportConfig,
    timeouts: UpstreamTimeouts,
    /// The address and target of the last call: connections are reused while the address is unchanged.
    last: Mutex<Option<(RuntimeAddress, Arc<HttpTarget>)>>,
}

impl LocalRuntimeTransport {
    fn target(&self, address: RuntimeAddress) -> Result<Arc<HttpTarget>, Fault> {
        let mut last = self.last.lock();
        if let Some((last_address, target)) = &*last
            && *last_address == address
        {
            return Ok(Arc::clone(target));
        }
        let endpoint = AgentEndpoint::Unix { socket: address.socket.clone(), path: address.path.clone() };
        let target = self
            .local
            .http
            .build_target_at(&endpoint, &self.settings)
            .map_err(|errors| not_running_fault(&errors.join("; ")))?;
        *last = Some((address, Arc::clone(&target)));
        Ok(target)
    }
}

#[async_trait::async_trait]
impl Transport for LocalRuntimeTransport {
    fn timeouts(&self) -> &UpstreamTimeouts {
        &self.timeouts
    }

    async fn is_reachable(&self) -> bool {
        let target = self.local.find_runtime(&self.name).await.and_then(|address| self.target(address));
        match target {
            Ok(target) => self.local.http.is_reachable(&target).await,
            Err(_) => false,
        }
    }

    async fn call(&self, request: UpstreamCall<'_>, deadline: Instant) -> Result<UpstreamReply, Fault> {
        let target = self.target(self.local.find_runtime(&self.name).await?)?;
        self.local.http.call(&target, request, deadline).await
    }
}
