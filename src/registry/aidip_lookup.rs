//! Lookup of one agent at a time in an AIDIP registry that is too large to copy.

use super::{
    AgentLookup, LookupTtl,
    config::{RemoteSourceConfig, SourceConfig, SourceKind},
    feed::{DocumentBody, RawDocument},
};
use crate::{
    agent::{AgentId, AgentSource},
    net::{self, AddressPolicy, FetchClient, FetchLimits, SourceClient, Url},
    values::sha256,
};
use http::{HeaderMap, HeaderValue, header};
use std::{sync::Arc, time::Duration};

/// Maximum time for which the result for an unknown id is cached.
const MAX_NEGATIVE_TTL: Duration = Duration::from_secs(10);
/// How long an agent is cached while its registry is down, if the configuration sets no bound.
const DEFAULT_STALE_TTL: Duration = Duration::from_secs(366 * 86_400);

struct AidipLookup {
    client: SourceClient,
    source: Arc<AgentSource>,
}

/// Registries in order of precedence, and how long their results are cached.
pub type LookupSources = (Vec<Arc<dyn AgentLookup>>, LookupTtl);

/// Opens the on-demand sources among `sources`, in order of precedence; returns `None` if there are none.
///
/// # Errors
/// Every problem, by its path within the section `agents`.
pub fn open_lookups(
    sources: &[SourceConfig],
    network: &net::NetworkConfig,
    policy: &Arc<AddressPolicy>,
) -> Result<Option<LookupSources>, Vec<String>> {
    let mut on_demand: Vec<(usize, &RemoteSourceConfig)> = Vec::new();
    for (at, source) in sources.iter().enumerate() {
        if let SourceConfig::Remote(remote) = source
            && remote.on_demand
        {
            on_demand.push((at, remote));
        }
    }
    let Some(found_ttl) = on_demand.iter().map(|(_, remote)| remote.poll_interval.get()).min() else { return Ok(None) };
    let stale_ttl = on_demand
        .iter()
        .map(|(_, remote)| remote.max_staleness.map_or(DEFAULT_STALE_TTL, crate::values::ConfigDuration::get))
        .max();
    let ttl = LookupTtl {
        positive: found_ttl,
        negative: found_ttl.min(MAX_NEGATIVE_TTL),
        stale: stale_ttl.unwrap_or(DEFAULT_STALE_TTL),
    };
    let client = FetchClient::build(network, Arc::clone(policy))?;
    let (mut lookups, mut problems) = (Vec::new(), Vec::new());
    for (at, remote) in on_demand {
        match AidipLookup::open(remote, network, &client) {
            Ok(lookup) => lookups.push(Arc::new(lookup) as _),
            Err(errors) => problems.extend(errors.iter().map(|why| format!("sources[{at}].{why}"))),
        }
    }
    if problems.is_empty() { Ok(Some((lookups, ttl))) } else { Err(problems) }
}

impl AidipLookup {
    fn open(
        remote: &RemoteSourceConfig,
        network: &net::NetworkConfig,
        client: &FetchClient,
    ) -> Result<Self, Vec<String>> {
        if remote.kind != SourceKind::Aidip {
            return Err(vec!["on_demand: is only for kind aidip (others have no document at a known URL)".to_owned()]);
        }
        let limits = FetchLimits { size: remote.max_response_size, time: remote.fetch_timeout };
        let client = SourceClient::build(network, client, &remote.url, remote.credential.as_ref(), limits)?;
        Ok(Self { client, source: Arc::new(remote.agent_source()) })
    }

    fn document_url(&self, id: &AgentId) -> Url {
        let mut url = self.client.url().clone();
        let list_path = url.path().trim_end_matches('/');
        let path = format!("{}/{id}", if list_path.is_empty() { "/agents" } else { list_path });
        url.set_path(&path);
        url
    }
}

#[async_trait::async_trait]
impl AgentLookup for AidipLookup {
    fn source(&self) -> Arc<AgentSource> {
        Arc::clone(&self.source)
    }

    async fn fetch_document(&self, id: &AgentId) -> Result<Option<RawDocument>, String> {
        let url = self.document_url(id);
        let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("application/json"))]);
        let reply = self.client.get(&url, &headers).await.map_err(|why| why.to_string())?;
        match reply.status {
            200 => Ok(Some(RawDocument::new(sha256(&reply.body), DocumentBody::Text(reply.body)))),
            404 | 410 => Ok(None),
            status => Err(format!("{url}: status {status} instead of 200")),
        }
    }
}
