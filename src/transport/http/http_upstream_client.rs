//! The client of all upstreams over HTTP: builds the targets of calls, which share connection pools and TLS profiles.

use super::{
    connection_pool::{ConnectAddress, ConnectionPool, PoolKey, PoolTls},
    http_target::{EndpointParts, HttpTarget, check_plaintext, load_credential, split_endpoint},
    tls_profile::{self, TlsProfile},
};
use crate::{
    agent::{Agent, AgentEndpoint},
    net::AddressPolicy,
    transport::{
        CredentialDestinations,
        config::{TransportConfig, UpstreamTlsConfig},
        endpoint_transport::EndpointTransport,
        headers::{CallerHeaderNames, ForwardedHeaders, GatewayHeaders},
        timeouts::UpstreamTimeouts,
        transport_kind::TransportKind,
    },
};
use arc_swap::ArcSwap;
use http::{HeaderValue, uri::Scheme};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::time::Instant;

/// How often idle connections and changed TLS files are checked.
const SWEEP_INTERVAL: Duration = Duration::from_secs(2);

/// The HTTP client for all upstreams. It outlives every configuration, and so do its connections.
#[derive(Debug)]
pub(in crate::transport) struct HttpUpstreamClient {
    policy: Arc<ArcSwap<AddressPolicy>>,
    pools: Mutex<HashMap<PoolKey, Weak<ConnectionPool>>>,
    profiles: Mutex<HashMap<UpstreamTlsConfig, Weak<TlsProfile>>>,
}

impl HttpUpstreamClient {
    /// Requires a tokio runtime: a task closes idle connections, and ends with this client.
    pub(in crate::transport) fn new(policy: Arc<AddressPolicy>) -> Arc<Self> {
        let policy = Arc::new(ArcSwap::new(policy));
        let http = Arc::new(Self { policy, pools: Mutex::default(), profiles: Mutex::default() });
        tokio::spawn(run_sweeper(Arc::downgrade(&http)));
        http
    }

    /// Builds the target of calls to `endpoint`.
    ///
    /// # Errors
    /// Every reason why the endpoint cannot be called as configured, each prefixed with its field.
    pub(in crate::transport) fn build_target(
        &self,
        endpoint: &AgentEndpoint,
        settings: &TransportConfig,
    ) -> Result<Arc<HttpTarget>, Vec<String>> {
        let mut problems = Vec::new();
        let endpoint_parts = split_endpoint(endpoint).map_err(|problem| problems.push(problem)).ok();
        let credential = settings.credential.as_ref().map(load_credential).transpose();
        let credential = credential.map_err(|problem| problems.push(problem)).ok();
        let forwarded = ForwardedHeaders::compile(settings.forwarded_headers.as_deref().unwrap_or_default());
        let forwarded = forwarded.map_err(|errors| problems.extend(errors)).ok();
        let host = endpoint_parts.as_ref().and_then(|parts| HeaderValue::from_str(parts.authority.as_str()).ok());
        let pool = endpoint_parts.as_ref().and_then(|parts| {
            let pool = check_plaintext(parts, settings).and_then(|()| self.get_or_create_pool(parts, settings));
            pool.map_err(|errors| problems.extend(errors)).ok()
        });
        let (Some(parts), Some(credential), Some(forwarded), Some(host), Some(pool)) =
            (endpoint_parts, credential, forwarded, host, pool)
        else {
            return Err(problems);
        };
        let EndpointParts { scheme, authority, path, .. } = parts;
        let timeouts = UpstreamTimeouts::from(&settings.timeouts);
        Ok(Arc::new(HttpTarget {
            pool,
            policy: Arc::clone(&self.policy),
            scheme,
            authority,
            path,
            gateway_headers: GatewayHeaders {
                host,
                credential,
                forwarded,
                caller_headers: CallerHeaderNames::compile(settings.caller_headers.as_ref()),
            },
            timeouts,
        }))
    }

    fn get_or_create_pool(
        &self,
        parts: &EndpointParts,
        settings: &TransportConfig,
    ) -> Result<Arc<ConnectionPool>, Vec<String>> {
        let is_https = parts.scheme == Scheme::HTTPS;
        let address = match settings.connect_address {
            // The same form as that of an endpoint with this address.
            Some(address) => ConnectAddress::Tcp { host: address.ip().to_string().into(), port: address.port() },
            None => parts.address.clone(),
        };
        // The certificate must carry the name of the endpoint's host, wherever the connection goes.
        let server_name = settings.connect_address.map(|_| parts.authority.host().to_owned());
        let own_name = settings.tls.server_name.clone().or(server_name);
        let key = PoolKey {
            address,
            tls: is_https.then(|| UpstreamTlsConfig { server_name: own_name, ..settings.tls.clone() }),
            h2c: !is_https && settings.h2c.unwrap_or(false),
            keep_alive: settings.idle_connection_timeout.map_or(Duration::from_secs(4), |duration| duration.get()),
            max_idle: settings.max_idle_connections.unwrap_or(256),
            public_addresses_only: settings.public_addresses_only,
        };
        let tls = is_https.then(|| self.get_or_create_tls(parts, &settings.tls)).transpose()?;
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.get(&key).and_then(Weak::upgrade) {
            return Ok(pool);
        }
        let pool = Arc::new(ConnectionPool::new(key.clone(), tls));
        pools.insert(key, Arc::downgrade(&pool));
        Ok(pool)
    }

    fn get_or_create_tls(&self, parts: &EndpointParts, settings: &UpstreamTlsConfig) -> Result<PoolTls, Vec<String>> {
        let name = tls_profile::parse_server_name(settings, parts.authority.host()).map_err(|problem| vec![problem])?;
        // The server name is verified per pool; a profile depends on the files alone.
        let files = UpstreamTlsConfig {
            server_name: None,
            destinations: CredentialDestinations::default(),
            ..settings.clone()
        };
        let mut profiles = self.profiles.lock();
        let profile = match profiles.get(&files).and_then(Weak::upgrade) {
            Some(profile) => profile,
            None => {
                let profile = TlsProfile::load(&files)?;
                profiles.insert(files, Arc::downgrade(&profile));
                profile
            }
        };
        Ok(PoolTls { profile, server_name: name })
    }

    fn live_pools(&self) -> Vec<Arc<ConnectionPool>> {
        let mut pools = self.pools.lock();
        pools.retain(|_, pool| pool.strong_count() > 0);
        pools.values().filter_map(Weak::upgrade).collect()
    }

    fn live_profiles(&self) -> Vec<Arc<TlsProfile>> {
        let mut profiles = self.profiles.lock();
        profiles.retain(|_, profile| profile.strong_count() > 0);
        profiles.values().filter_map(Weak::upgrade).collect()
    }

    /// The number of idle connections.
    pub(in crate::transport) fn idle_connections(&self) -> usize {
        self.live_pools().iter().map(|pool| pool.idle_connections()).sum()
    }

    /// Closes connections that are idle for too long, and reloads TLS files that have changed.
    pub(in crate::transport) async fn sweep(&self) {
        let now = Instant::now();
        for pool in self.live_pools() {
            pool.close_expired(now);
        }
        let profiles = self.live_profiles();
        // Fails only while the runtime shuts down.
        let _ =
            tokio::task::spawn_blocking(move || profiles.iter().for_each(|profile| profile.reload_if_changed())).await;
    }
}

impl TransportKind for HttpUpstreamClient {
    fn problems(&self, settings: &TransportConfig) -> Vec<String> {
        let mut problems = TlsProfile::load(&settings.tls).err().unwrap_or_default();
        problems.extend(settings.credential.as_ref().and_then(|credential| load_credential(credential).err()));
        problems
    }

    fn build_transport(&self, agent: &Agent, settings: &TransportConfig) -> Result<EndpointTransport, Vec<String>> {
        self.build_target(&agent.endpoint, settings).map(EndpointTransport::Http)
    }

    fn set_address_policy(&self, policy: &Arc<AddressPolicy>) {
        self.policy.store(Arc::clone(policy));
        // Idle connections that the old policy permitted are closed at once, the others after their calls.
        for pool in self.live_pools() {
            pool.close_all();
        }
    }
}

async fn run_sweeper(http: Weak<HttpUpstreamClient>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let Some(http) = http.upgrade() else { return };
        http.sweep().await;
    }
}
