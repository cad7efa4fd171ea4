//! Representations of long documents, which are made once and shared: they say the same to every caller that may see the
//! agent and addresses the gateway by the same URL.

use super::{DirectoryCall, conditional_response::Representation, media_types::A2A_VERSION};
use crate::{agent::Agent, fault::Result, values::sha256};
use http::header;
use std::sync::Arc;

/// The longest document whose representations are made for each request, on the threads of calls, in bytes.
pub const MAX_SHORT_DOCUMENT: usize = 32 << 10;
/// Memory for representations and the agents that they are of, in bytes.
const MAX_MEMORY: u64 = 16 << 20;

/// The representations that were made under this configuration.
#[derive(Debug)]
pub struct RepresentationCache(moka::sync::Cache<[u8; 32], Arc<(Arc<Agent>, Representation)>>);

impl Default for RepresentationCache {
    fn default() -> Self {
        let weigh = |_: &[u8; 32], entry: &Arc<(Arc<Agent>, Representation)>| {
            u32::try_from(entry.0.document.len() + entry.1.body_length()).unwrap_or(u32::MAX)
        };
        Self(moka::sync::Cache::builder().max_capacity(MAX_MEMORY).weigher(weigh).build())
    }
}

impl RepresentationCache {
    /// Returns the representation of the requested agent that `call` asks for, which `make` makes where there is none.
    ///
    /// # Errors
    /// The agent is not visible, or `make` fails.
    pub(super) fn get_or_make(
        &self,
        call: &DirectoryCall<'_>,
        make: impl FnOnce() -> Result<Representation>,
    ) -> Result<Representation> {
        let agent = call.requested_agent()?;
        if agent.document.len() <= MAX_SHORT_DOCUMENT {
            return make();
        }
        let key = key_of(call, &agent);
        // An agent that has changed, or whose rules have, is another one.
        let found = self.0.get(&key).filter(|entry| Arc::ptr_eq(&entry.0, &agent));
        if let Some(entry) = found {
            return Ok(entry.1.clone());
        }
        let made = make()?.with_entity_tag();
        self.0.insert(key, Arc::new((agent, made.clone())));
        Ok(made)
    }
}

/// Digests everything of a request that its representation depends on.
fn key_of(call: &DirectoryCall<'_>, agent: &Agent) -> [u8; 32] {
    let headers = [header::ACCEPT, A2A_VERSION];
    let values = headers.iter().flat_map(|name| {
        let values = call.headers.get_all(name).iter().map(|value| value.as_bytes());
        std::iter::once(name.as_str().as_bytes()).chain(values)
    });
    let request = format!("{:?}", call.request);
    let own = [request.as_bytes(), agent.id.as_str().as_bytes(), call.base_url.as_bytes()];
    let query = call.query.unwrap_or_default().as_bytes();
    // No part contains the separator.
    sha256(&own.into_iter().chain(std::iter::once(query)).chain(values).collect::<Vec<_>>().join(&0))
}
