//! Lookup of one agent at a time in an AIDIP registry that is too large to copy.

use super::{
    Lookup, Memory,
    config::{Kind, Remote, Source},
    feed::{Body, Document},
    read::sha256,
};
use crate::{
    agent::AgentId,
    net::{self, AddressPolicy, Bounds, Client, Session, Url},
};
use http::{HeaderMap, HeaderValue, header};
use std::{sync::Arc, time::Duration};

/// Maximum time for which an unknown id is cached.
const MISSING: Duration = Duration::from_secs(10);
/// How long an agent is cached while its registry is down, where no setting bounds it.
const YEAR: Duration = Duration::from_secs(366 * 86_400);

struct Book(Session);

/// Registries in order of precedence, and how long their results are cached.
pub type Lookups = (Vec<Arc<dyn Lookup>>, Memory);

/// Opens the lazy sources of `from`, in order of precedence; `None` where there are none.
///
/// # Errors
/// Every problem, by its path within the section `agents`.
pub fn lookups(
    from: &[Source],
    network: &net::Config,
    policy: &Arc<AddressPolicy>,
) -> Result<Option<Lookups>, Vec<String>> {
    let mut lazy: Vec<(usize, &Remote)> = Vec::new();
    for (at, source) in from.iter().enumerate() {
        if let Source::Remote(remote) = source
            && remote.on_demand
        {
            lazy.push((at, remote));
        }
    }
    let Some(found) = lazy.iter().map(|(_, remote)| remote.poll_interval.get()).min() else { return Ok(None) };
    let stale = lazy.iter().map(|(_, remote)| remote.max_staleness.map_or(YEAR, crate::unit::Span::get)).max();
    let memory = Memory { found, missing: found.min(MISSING), stale: stale.unwrap_or(YEAR) };
    let client = Client::build(network, Arc::clone(policy))?;
    let (mut books, mut problems) = (Vec::new(), Vec::new());
    for (at, remote) in lazy {
        match Book::open(remote, network, &client) {
            Ok(book) => books.push(Arc::new(book) as _),
            Err(whys) => problems.extend(whys.iter().map(|why| format!("from[{at}].{why}"))),
        }
    }
    if problems.is_empty() { Ok(Some((books, memory))) } else { Err(problems) }
}

impl Book {
    fn open(remote: &Remote, network: &net::Config, client: &Client) -> Result<Self, Vec<String>> {
        if remote.kind != Kind::Aidip {
            return Err(vec!["lazy: is only for kind aidip (others have no document at a known URL)".to_owned()]);
        }
        let bounds = Bounds { size: remote.max_response_size, time: remote.fetch_timeout };
        Session::build(network, client, &remote.url, remote.credential.as_ref(), bounds).map(Self)
    }

    fn place(&self, id: &AgentId) -> Url {
        let mut place = self.0.url().clone();
        let list = place.path().trim_end_matches('/');
        let path = format!("{}/{id}", if list.is_empty() { "/agents" } else { list });
        place.set_path(&path);
        place
    }
}

#[async_trait::async_trait]
impl Lookup for Book {
    async fn look(&self, id: &AgentId) -> Result<Option<Document>, String> {
        let place = self.place(id);
        let fields = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("application/json"))]);
        let answer = self.0.get(&place, &fields).await.map_err(|why| why.to_string())?;
        match answer.status {
            200 => Ok(Some(Document { digest: sha256(&answer.body), body: Body::Text(answer.body) })),
            404 | 410 => Ok(None),
            status => Err(format!("{place}: status {status} instead of 200")),
        }
    }
}
