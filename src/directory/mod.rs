//! Directory of agents: discovery and publishing in each format that clients read. It builds responses; sessions,
//! authentication and the format of errors belong to `gateway`. It shows a caller only the agents that
//! [`AgentVisibility`] permits.

mod address;
mod body;
mod caching;
mod card;
mod config;
mod credentials;
mod descriptor;
mod document;
mod face;
mod fields;
mod filters;
mod framework;
mod indexed;
mod list;
mod media;
mod naming;
mod openapi;
mod publish;
mod query;
mod resolve;
mod summary;

pub use config::{Config, Endpoints, Provider};
pub use credentials::Credentials;
pub use face::{CALLS, Face, PATHS, PIPELINES, TASKS};
pub use indexed::Indexed;

use crate::{
    agent::Agent,
    auth::Caller,
    fault::{Code, Fault, Result},
    names::Resolver,
    registry::Registry,
    seal, search,
    unit::Glob,
};
use bytes::Bytes;
use caching::{Page, reads};
use http::{HeaderMap, Method, StatusCode};
use serde_json::Value;
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

/// How long a publisher waits until its agent is indexed. The agent is stored, and callable, before that.
const FINDING: Duration = Duration::from_secs(1);

/// The agents visible to one caller, at one moment.
pub trait Sight: Send + Sync {
    /// Returns the agent `id` if it is visible to the caller.
    fn find(&self, id: &str) -> Option<Arc<Agent>>;
    /// Whether `agent` is visible to the caller.
    fn sees(&self, agent: &Agent) -> bool;
    /// Returns when any agent last changed.
    fn changed(&self) -> SystemTime;
}

/// A call to the directory.
pub struct Ask<'a> {
    /// The request, by its path.
    pub face: Face,
    /// `{id}` of the path; empty if the path has none.
    pub id: &'a str,
    /// One of the request's methods.
    pub method: &'a Method,
    /// Query without its question mark.
    pub query: Option<&'a str>,
    /// Headers of the request.
    pub headers: &'a HeaderMap,
    /// The whole body; empty if there is none.
    pub body: Bytes,
    /// The caller.
    pub caller: &'a Caller,
    /// The agents visible to the caller.
    pub sight: &'a dyn Sight,
    /// The gateway's URL as the caller knows it: `https://host[:port]`, without a trailing slash.
    pub base: &'a str,
}

/// Response of the directory.
#[derive(Debug)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// Headers, without those of framing.
    pub headers: HeaderMap,
    /// Body, also for `HEAD`.
    pub body: Bytes,
}

/// Serves directory requests.
#[derive(Debug)]
pub struct Directory {
    /// Search index of the agents.
    pub index: Arc<search::Index>,
    /// Progress of the index; `None` if nothing waits for it.
    pub indexed: Option<Indexed>,
    /// Registry that stores published agents; `None` if publishing is disabled.
    pub registry: Option<Arc<Registry>>,
    /// Key that signs cards; `None` if cards are unsigned.
    pub signer: Option<Arc<seal::Signer>>,
    /// Kinds of credential that the gateway accepts, for the documents that describe calls.
    pub credentials: Credentials,
    /// JSON Schema of agents' documents; `None` if it is not published.
    pub metadata: Option<Arc<Value>>,
    /// Resolver of `agent://` names; `None` if it is disabled.
    pub names: Option<Arc<Resolver>>,
    /// Configuration.
    pub config: Config,
}

impl Directory {
    /// Returns the globs of agents that are discoverable without a credential.
    pub fn public(&self) -> &[Glob] {
        &self.config.public_agents
    }

    /// Returns the configured base URL of the gateway.
    pub fn base(&self) -> Option<&str> {
        self.config.external_url.as_deref()
    }

    /// Serves a call.
    ///
    /// # Errors
    /// The fault to respond with.
    pub async fn answer(&self, call: Ask<'_>) -> Result<Answer> {
        if !call.face.methods().contains(call.method) {
            let message = format!("The method is not allowed here (allowed: {})", call.face.allow());
            return Err(Fault::new(Code::MethodNotAllowed, message).header("Allow", call.face.allow()));
        }
        match call.face {
            Face::Agents if !reads(call.method) => self.findable(self.publish(&call).await?).await,
            Face::Agent if !reads(call.method) => self.findable(self.change(&call).await?).await,
            Face::Agent => self.document(&call).await,
            Face::History => self.history(&call).await,
            Face::Search => self.search(&call),
            Face::Resolve => self.resolve(&call),
            Face::Name => self.resolve_name(&call).await,
            Face::FrameworkMoved | Face::FrameworkAgentMoved => Ok(self.framework_moved(&call)),
            _ => Ok(self.give(&call, self.page(&call)?)),
        }
    }

    /// Returns the response to a write, once the index contains the change.
    async fn findable(&self, answer: Answer) -> Result<Answer> {
        if let Some(indexed) = &self.indexed {
            indexed.catch_up(FINDING).await;
        }
        Ok(answer)
    }

    /// Builds the representation for a request that only reads.
    fn page(&self, call: &Ask<'_>) -> Result<Page> {
        match call.face {
            Face::Agents => self.list(call),
            Face::Map => self.map(call),
            // A client that states a version of A2A wants its card, which once had this path.
            Face::Descriptor if call.headers.contains_key(caching::A2A_VERSION) => self.card(call),
            Face::HouseDescriptor if call.headers.contains_key(caching::A2A_VERSION) => self.house_card(call),
            Face::Descriptor => self.descriptor(call),
            Face::HouseDescriptor => self.house_descriptor(call),
            Face::Card => self.card(call),
            Face::HouseCard => self.house_card(call),
            Face::AgentApi => self.agent_api(call),
            Face::HouseApi => self.house_api(call),
            Face::Framework => self.framework(call),
            Face::FrameworkAgent => self.framework_agent(call),
            Face::Keys => self.keys(call),
            Face::Schema => self.schema(call),
            _ => Err(Fault::new(Code::NotFound, "There is nothing at this path")),
        }
    }

    /// Returns the keys that sign cards; an empty set if cards are unsigned.
    fn keys(&self, call: &Ask<'_>) -> Result<Page> {
        let media = media::choose(call.headers, &["application/jwk-set+json", media::JSON])?;
        let keys = self.signer.as_ref().map_or_else(|| serde_json::json!({"keys": []}), |signer| signer.jwks());
        Page::json(media, &keys)
    }

    /// Returns the JSON Schema of agents' documents.
    fn schema(&self, call: &Ask<'_>) -> Result<Page> {
        let media = media::choose(call.headers, &["application/schema+json", media::JSON])?;
        let none = || Fault::new(Code::NotFound, "The schema of agent documents is not published here");
        Page::json(media, &**self.metadata.as_ref().ok_or_else(none)?)
    }
}

#[cfg(test)]
mod tests;
