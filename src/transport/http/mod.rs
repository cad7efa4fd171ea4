//! Upstreams over HTTP/1.1 and HTTP/2: TCP, TLS and Unix sockets, with connection pools. Plain text beyond this machine
//! is refused unless the configuration allows it, and only addresses that the policy permits are connected to.

mod answer;
mod connect;
mod exchange;
mod failure;
mod line;
mod message;
mod pool;
mod target;
mod tls;
mod upgrade;
mod wire;

pub(super) use answer::Answer;
pub use target::Target;
pub(super) use upgrade::{Offer, Switched};

use super::{
    headers::Own,
    settings::{Bounds, Settings, Tls},
};
use crate::{
    agent::{Agent, Endpoint},
    net::AddressPolicy,
};
use arc_swap::ArcSwap;
use http::{HeaderValue, uri::Scheme};
use pool::{Key, Pool, Security};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};
use target::{Parts, check_plaintext, credential, parts};
use tls::Profile;
use tokio::time::Instant;

/// The maximum size of a response head, all header lines together, in bytes.
const LARGEST_HEAD: usize = 64 << 10;

/// How often idle connections and changed TLS files are checked.
const SWEEP: Duration = Duration::from_secs(2);

/// Returns the files and secrets of `settings` that cannot be used, for any agent.
pub(super) fn problems(settings: &Settings) -> Vec<String> {
    let mut problems = Profile::load(&settings.tls).err().unwrap_or_default();
    problems.extend(settings.credential.as_ref().and_then(|shown| credential(shown).err()));
    problems
}

/// Builds the TLS configuration of `settings`, for transports that negotiate no protocol (ALPN). Reads files.
pub(super) fn client_config(settings: &Tls) -> Result<rustls::ClientConfig, Vec<String>> {
    let mut config = (*Profile::load(settings)?.live().config).clone();
    config.alpn_protocols.clear();
    Ok(config)
}

/// All HTTP connections of the gateway. It outlives every configuration, and so do the connections.
#[derive(Debug)]
pub(super) struct Http {
    policy: ArcSwap<AddressPolicy>,
    pools: Mutex<HashMap<Key, Weak<Pool>>>,
    profiles: Mutex<HashMap<Tls, Weak<Profile>>>,
}

impl Http {
    /// Requires a tokio runtime: a task closes idle connections, and ends with this client.
    pub(super) fn new(policy: Arc<AddressPolicy>) -> Arc<Self> {
        let http = Arc::new(Self { policy: ArcSwap::new(policy), pools: Mutex::default(), profiles: Mutex::default() });
        tokio::spawn(tend(Arc::downgrade(&http)));
        http
    }

    pub(super) fn set_policy(&self, policy: Arc<AddressPolicy>) {
        self.policy.store(policy);
        // Idle connections that the old policy permitted are closed at once, the others after their calls.
        for pool in self.live_pools() {
            pool.clear();
        }
    }

    fn policy(&self) -> Arc<AddressPolicy> {
        self.policy.load_full()
    }

    pub(super) fn target(&self, agent: &Agent, settings: &Settings) -> Result<Arc<Target>, Vec<String>> {
        self.target_at(&agent.endpoint, settings)
    }

    pub(super) fn target_at(&self, endpoint: &Endpoint, settings: &Settings) -> Result<Arc<Target>, Vec<String>> {
        let mut problems = Vec::new();
        let parts = parts(endpoint).map_err(|why| problems.push(why)).ok();
        let credential = settings.credential.as_ref().map(credential).transpose();
        let credential = credential.map_err(|why| problems.push(why)).ok();
        let host = parts.as_ref().and_then(|parts| HeaderValue::from_str(parts.authority.as_str()).ok());
        let pool = parts.as_ref().and_then(|parts| {
            let pool = check_plaintext(parts, settings).and_then(|()| self.pool(parts, settings));
            pool.map_err(|whys| problems.extend(whys)).ok()
        });
        let (Some(parts), Some(credential), Some(host), Some(pool)) = (parts, credential, host, pool) else {
            return Err(problems);
        };
        let Parts { scheme, authority, path, .. } = parts;
        let bounds = Bounds::from(&settings.timeouts);
        Ok(Arc::new(Target { pool, scheme, authority, path, own: Own { host, credential }, bounds }))
    }

    fn pool(&self, parts: &Parts, settings: &Settings) -> Result<Arc<Pool>, Vec<String>> {
        let secure = parts.scheme == Scheme::HTTPS;
        let key = Key {
            place: parts.place.clone(),
            tls: secure.then(|| settings.tls.clone()),
            h2c: !secure && settings.h2c.unwrap_or(false),
            keep_alive: settings.idle_connection_timeout.map_or(Duration::from_secs(4), |span| span.get()),
            most_idle: settings.max_idle_connections.unwrap_or(256),
        };
        let security = secure.then(|| self.security(parts, &settings.tls)).transpose()?;
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = pools.get(&key).and_then(Weak::upgrade) {
            return Ok(pool);
        }
        let pool = Arc::new(Pool::new(key.clone(), security));
        pools.insert(key, Arc::downgrade(&pool));
        Ok(pool)
    }

    fn security(&self, parts: &Parts, settings: &Tls) -> Result<Security, Vec<String>> {
        let name = tls::server_name(settings, parts.authority.host()).map_err(|why| vec![why])?;
        // The server name is verified per pool; a profile depends on the files alone.
        let files = Tls { server_name: None, ..settings.clone() };
        let mut profiles = self.profiles.lock().unwrap_or_else(PoisonError::into_inner);
        let profile = match profiles.get(&files).and_then(Weak::upgrade) {
            Some(profile) => profile,
            None => {
                let profile = Profile::load(&files)?;
                profiles.insert(files, Arc::downgrade(&profile));
                profile
            }
        };
        Ok(Security { profile, name })
    }

    fn live_pools(&self) -> Vec<Arc<Pool>> {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|_, pool| pool.strong_count() > 0);
        pools.values().filter_map(Weak::upgrade).collect()
    }

    fn live_profiles(&self) -> Vec<Arc<Profile>> {
        let mut profiles = self.profiles.lock().unwrap_or_else(PoisonError::into_inner);
        profiles.retain(|_, profile| profile.strong_count() > 0);
        profiles.values().filter_map(Weak::upgrade).collect()
    }

    /// The number of idle connections.
    pub(super) fn idle(&self) -> usize {
        self.live_pools().iter().map(|pool| pool.idle()).sum()
    }

    /// Closes connections that are idle for too long, and reloads TLS files that have changed.
    pub(super) async fn sweep(&self) {
        let now = Instant::now();
        for pool in self.live_pools() {
            pool.sweep(now);
        }
        let profiles = self.live_profiles();
        // Fails only while the runtime shuts down.
        let _ = tokio::task::spawn_blocking(move || profiles.iter().for_each(|profile| profile.refresh())).await;
    }
}

async fn tend(http: Weak<Http>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(http) = http.upgrade() else { return };
        http.sweep().await;
    }
}
