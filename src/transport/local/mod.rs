//! Local runtimes: agents on this machine that register themselves (R51), with a descriptor in a private folder or
//! with a lease over the admin listener. Each call looks the address up, so that a stopped runtime is gone at once.
//! This module starts no runtime, and trusts nothing that another user of the machine could have written.

mod folder;
mod lease;

pub use lease::Leased;
use lease::NewLease;

use super::{Bounds, Reply, Request, Settings, Way, http::Http};
use crate::{
    agent::{AgentId, Endpoint},
    fault::{Code, Fault},
    net::AddressPolicy,
    transport::Target,
    unit::{FilePath, Glob, Span},
};
use arc_swap::ArcSwapOption;
use folder::Place;
use lease::Leases;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::time::Instant;

/// Where runtimes on this machine register.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[schemars(rename = "Local")]
#[serde(deny_unknown_fields)]
pub struct LocalConfig {
    /// The folder in which a runtime places its socket and its descriptor, NAME.json: an object of at most 64KiB with
    /// `socket`, a file of this folder (default: NAME.sock), and `path`, the HTTP path (default: /). The folder, the
    /// descriptor and the socket belong to the owner, are not links, and are not writable by other users.
    pub folder: FilePath,
    /// The numeric id of the user that owns the folder and its files. Default: the user that runs the gateway.
    #[serde(default)]
    pub owner: Option<u32>,
    /// The longest lease that the admin listener grants (PUT /local/NAME); 1s to 24h. Default: 1h.
    #[serde(default = "default_longest_lease")]
    pub longest_lease: Span,
}

fn default_longest_lease() -> Span {
    Span::secs(3600)
}

impl LocalConfig {
    /// Returns every value that cannot be used.
    pub fn problems(&self) -> Vec<String> {
        let fits = (1..=86_400).contains(&self.longest_lease.get().as_secs());
        let lease = (!fits).then(|| format!("longest_lease: is {} (must be 1s to 24h)", self.longest_lease));
        lease.into_iter().chain(folder::problem(self).map(|why| format!("folder: {why}"))).collect()
    }
}

/// Every registered runtime. It outlives every configuration.
#[derive(Debug)]
pub(super) struct Local {
    config: ArcSwapOption<LocalConfig>,
    leases: Leases,
    /// A client of its own: each socket is verified here, and the address policy for documents does not apply.
    http: Arc<Http>,
}

impl Local {
    /// Requires a tokio runtime.
    pub(super) fn new() -> Arc<Self> {
        let any: Vec<Glob> = "/*".parse().into_iter().collect();
        let http = Http::new(Arc::new(AddressPolicy::default().with_sockets(any)));
        Arc::new(Self { config: ArcSwapOption::default(), leases: Leases::default(), http })
    }

    pub(super) fn configure(&self, config: Option<LocalConfig>) {
        self.config.store(config.map(Arc::new));
    }

    pub(super) fn idle(&self) -> usize {
        self.http.idle()
    }

    /// Builds the transport to the runtime called `name`, whether it is running or not.
    pub(super) fn way(self: &Arc<Self>, name: &AgentId, settings: &Settings) -> Result<Arc<dyn Way>, Vec<String>> {
        if self.config.load().is_none() {
            return Err(vec!["endpoint: names a local runtime, but none may register (add a section 'local')".into()]);
        }
        // A placeholder address, so that all other settings are validated now.
        self.http.target_at(&Endpoint::Unix { socket: "/".into(), path: "/".to_owned() }, settings)?;
        let bounds = Bounds::from(&settings.timeouts);
        let (local, name, settings) = (Arc::clone(self), name.clone(), settings.clone());
        Ok(Arc::new(Runtime { local, name, settings, bounds, last: Mutex::default() }))
    }

    /// Grants or renews a lease. Blocks while it checks the socket.
    ///
    /// # Errors
    /// No runtime may register, or the socket is not trusted.
    pub(super) fn lease(&self, name: &str, wanted: &[u8]) -> Result<Leased, Fault> {
        let refuse = |why: String| Fault::new(Code::InvalidInput, why);
        let closed = || Fault::new(Code::NotFound, "No runtime may register: the configuration has no section 'local'");
        let config = self.config.load_full().ok_or_else(closed)?;
        let name: AgentId = name.parse().map_err(refuse)?;
        let new: NewLease =
            serde_json::from_slice(wanted).map_err(|why| refuse(format!("The body is not a valid lease ({why})")))?;
        let (place, span) = new.checked(&config)?;
        folder::vet(&place.socket, &config).map_err(|why| refuse(format!("The socket cannot be used: {why}")))?;
        self.leases.put(&name, place, span)
    }

    /// Ends a lease. Returns whether there was one.
    pub(super) fn release(&self, name: &str) -> bool {
        self.leases.end(name)
    }

    async fn find(&self, name: &AgentId) -> Result<Place, Fault> {
        let Some(config) = self.config.load_full() else { return Err(gone("there is no section 'local' any more")) };
        let (leased, name) = (self.leases.find(name.as_str()), name.clone());
        let looked = tokio::task::spawn_blocking(move || match leased {
            Some(place) => folder::vet(&place.socket, &config).map(|()| place),
            None => folder::find(&config, &name),
        });
        looked.await.map_err(|_| gone("the lookup task failed"))?.map_err(|why| gone(&why))
    }
}

fn gone(why: &str) -> Fault {
    Fault::new(Code::AgentUnavailable, "The agent is not running").detail(why)
}

/// The transport to one local runtime.
#[derive(Debug)]
struct Runtime {
    local: Arc<Local>,
    name: AgentId,
    settings: Settings,
    bounds: Bounds,
    /// The address and target of the last call: connections are reused while the address is unchanged.
    last: Mutex<Option<(Place, Arc<Target>)>>,
}

impl Runtime {
    fn target(&self, place: Place) -> Result<Arc<Target>, Fault> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, target)) = &*last
            && *known == place
        {
            return Ok(Arc::clone(target));
        }
        let endpoint = Endpoint::Unix { socket: place.socket.clone(), path: place.path.clone() };
        let target = self.local.http.target_at(&endpoint, &self.settings).map_err(|whys| gone(&whys.join("; ")))?;
        *last = Some((place, Arc::clone(&target)));
        Ok(target)
    }
}

#[async_trait::async_trait]
impl Way for Runtime {
    fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    async fn reaches(&self) -> bool {
        let target = self.local.find(&self.name).await.and_then(|place| self.target(place));
        match target {
            Ok(target) => self.local.http.reaches(&target).await,
            Err(_) => false,
        }
    }

    async fn call(&self, request: Request<'_>, deadline: Instant) -> Result<Reply, Fault> {
        let target = self.target(self.local.find(&self.name).await?)?;
        self.local.http.call(&target, request, deadline).await
    }
}
