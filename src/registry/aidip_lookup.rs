//! Lookup of one agent at a time in an AIDIP registry that is too large to copy.

use super::{
    AgentLookup, LookupTtl,
    config::{RemoteSourceConfig, SourceConfig, SourceKind},
    document_parser::sha256,
    feed::{DocumentBody, RawDocument},
};
use crate::{
    agent::AgentId,
    net::{self, AddressPolicy, FetchClient, FetchLimits, SourceClient, Url},
};
use http::{HeaderMap, HeaderValue, header};
use std::{sync::Arc, time::Duration};

/// Maximum time for which an unknown id is cached.
const MAX_NEGATIVE_TTL: Duration = Duration::from_secs(10);
/// How long an agent is cached while its registry is down, where no setting bounds it.
const DEFAULT_STALE_TTL: Duration = Duration::from_secs(366 * 86_400);

struct AidipLookup(SourceClient);

/// Registries in order of precedence, and how long their results are cached.
pub type LookupSources = (Vec<Arc<dyn AgentLookup>>, LookupTtl);

/// Opens the lazy sources of `from`, in order of precedence; `None` where there are none.
///
/// # Errors
/// Every problem, by its path within the section `agents`.
pub fn open_lookups(
    from: &[SourceConfig],
    network: &net::NetworkConfig,
    policy: &Arc<AddressPolicy>,
) -> Result<Option<LookupSources>, Vec<String>> {
    let mut lazy: Vec<(usize, &RemoteSourceConfig)> = Vec::new();
    for (at, source) in from.iter().enumerate() {
        if let SourceConfig::Remote(remote) = source
            && remote.on_demand
        {
            lazy.push((at, remote));
        }
    }
    let Some(found) = lazy.iter().map(|(_, remote)| remote.poll_interval.get()).min() else { return Ok(None) };
    let stale = lazy
        .iter()
        .map(|(_, remote)| remote.max_staleness.map_or(DEFAULT_STALE_TTL, crate::values::ConfigDuration::get))
        .max();
    let memory = LookupTtl { found, missing: found.min(MAX_NEGATIVE_TTL), stale: stale.unwrap_or(DEFAULT_STALE_TTL) };
    let client = FetchClient::build(network, Arc::clone(policy))?;
    let (mut books, mut problems) = (Vec::new(), Vec::new());
    for (at, remote) in lazy {
        match AidipLookup::open(remote, network, &client) {
            Ok(book) => books.push(Arc::new(book) as _),
            Err(whys) => problems.extend(whys.iter().map(|why| format!("sources[{at}].{why}"))),
        }
    }
    if problems.is_empty() { Ok(Some((books, memory))) } else { Err(problems) }
}

impl AidipLookup {
    fn open(
        remote: &RemoteSourceConfig,
        network: &net::NetworkConfig,
        client: &FetchClient,
    ) -> Result<Self, Vec<String>> {
        if remote.kind != SourceKind::Aidip {
            return Err(vec!["lazy: is only for kind aidip (others have no document at a known URL)".to_owned()]);
        }
        let bounds = FetchLimits { size: remote.max_response_size, time: remote.fetch_timeout };
        SourceClient::build(network, client, &remote.url, remote.credential.as_ref(), bounds).map(Self)
    }

    fn document_url(&self, id: &AgentId) -> Url {
        let mut place = self.0.url().clone();
        let list = place.path().trim_end_matches('/');
        let path = format!("{}/{id}", if list.is_empty() { "/agents" } else { list });
        place.set_path(&path);
        place
    }
}

#[async_trait::async_trait]
impl AgentLookup for AidipLookup {
    async fn fetch_document(&self, id: &AgentId) -> Result<Option<RawDocument>, String> {
        let place = self.document_url(id);
        let fields = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("application/json"))]);
        let answer = self.0.get(&place, &fields).await.map_err(|why| why.to_string())?;
        match answer.status {
            200 => Ok(Some(RawDocument { digest: sha256(&answer.body), body: DocumentBody::Text(answer.body) })),
            404 | 410 => Ok(None),
            status => Err(format!("{place}: status {status} instead of 200")),
        }
    }
}
