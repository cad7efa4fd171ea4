//! The faces of discovery: what the gateway says of its agents, and how they are published, in each of the forms that
//! clients read. It renders answers; the session, the credentials and the errors' form are `gateway`'s. It shows a
//! caller only what [`Sight`] shows.

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

/// How long a publisher waits until its agent can be found. It is kept, and may be called, before.
const FINDING: Duration = Duration::from_secs(1);

/// What a caller may see of the agents, at one moment.
pub trait Sight: Send + Sync {
    /// The agent called `id`, where this caller may see it.
    fn find(&self, id: &str) -> Option<Arc<Agent>>;
    /// Whether this caller may see `agent`.
    fn sees(&self, agent: &Agent) -> bool;
    /// When any agent last changed.
    fn changed(&self) -> SystemTime;
}

/// What is asked.
pub struct Ask<'a> {
    /// Of what.
    pub face: Face,
    /// The path's `{id}`; empty where the face has none.
    pub id: &'a str,
    /// One of the face's methods.
    pub method: &'a Method,
    /// The query, without its question mark.
    pub query: Option<&'a str>,
    /// The request's fields.
    pub headers: &'a HeaderMap,
    /// The body, whole; empty where there is none.
    pub body: Bytes,
    /// Who asks.
    pub caller: &'a Caller,
    /// What it may see.
    pub sight: &'a dyn Sight,
    /// The gateway as the caller knows it: `https://host[:port]`, without a slash at the end.
    pub base: &'a str,
}

/// What is answered.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The fields, without those of framing.
    pub headers: HeaderMap,
    /// The body, also where only the head is asked for.
    pub body: Bytes,
}

/// Answers what is asked of the agents.
#[derive(Debug)]
pub struct Directory {
    /// Finds them.
    pub index: Arc<search::Index>,
    /// How far the index follows; none where nothing waits for it.
    pub indexed: Option<Indexed>,
    /// Where they are published; none where nothing can be.
    pub registry: Option<Arc<Registry>>,
    /// Signs cards; none where there is no key.
    pub signer: Option<Arc<seal::Signer>>,
    /// The kinds of credential that count, for the documents that say how agents are called.
    pub credentials: Credentials,
    /// The JSON Schema of agents' documents, which is published; none where there is none.
    pub metadata: Option<Arc<Value>>,
    /// Resolves `agent://` names; none where nobody does.
    pub names: Option<Arc<Resolver>>,
    /// The settings.
    pub config: Config,
}

impl Directory {
    /// Agents that anyone may discover, also without a credential.
    pub fn public(&self) -> &[Glob] {
        &self.config.public
    }

    /// How the gateway is addressed, where that is configured.
    pub fn base(&self) -> Option<&str> {
        self.config.url.as_deref()
    }

    /// Answers.
    ///
    /// # Errors
    /// Whatever the caller has to read instead.
    pub async fn answer(&self, ask: Ask<'_>) -> Result<Answer> {
        if !ask.face.methods().contains(ask.method) {
            let message = format!("the method is not taken here (taken: {})", ask.face.allow());
            return Err(Fault::new(Code::MethodNotAllowed, message).header("Allow", ask.face.allow()));
        }
        match ask.face {
            Face::Agents if !reads(ask.method) => self.findable(self.publish(&ask).await?).await,
            Face::Agent if !reads(ask.method) => self.findable(self.change(&ask).await?).await,
            Face::Agent => self.document(&ask).await,
            Face::History => self.history(&ask).await,
            Face::Search => self.search(&ask),
            Face::Resolve => self.resolve(&ask),
            Face::Name => self.resolve_name(&ask).await,
            Face::FrameworkMoved | Face::FrameworkAgentMoved => Ok(self.framework_moved(&ask)),
            _ => Ok(self.give(&ask, self.page(&ask)?)),
        }
    }

    /// The answer to a write, once what was written can be found.
    async fn findable(&self, answer: Answer) -> Result<Answer> {
        if let Some(indexed) = &self.indexed {
            indexed.catch_up(FINDING).await;
        }
        Ok(answer)
    }

    /// The faces that are only read.
    fn page(&self, ask: &Ask<'_>) -> Result<Page> {
        match ask.face {
            Face::Agents => self.list(ask),
            Face::Map => self.map(ask),
            // Whoever names a version of A2A means its card, which once had this path.
            Face::Descriptor if ask.headers.contains_key(caching::A2A_VERSION) => self.card(ask),
            Face::HouseDescriptor if ask.headers.contains_key(caching::A2A_VERSION) => self.house_card(ask),
            Face::Descriptor => self.descriptor(ask),
            Face::HouseDescriptor => self.house_descriptor(ask),
            Face::Card => self.card(ask),
            Face::HouseCard => self.house_card(ask),
            Face::AgentApi => self.agent_api(ask),
            Face::HouseApi => self.house_api(ask),
            Face::Framework => self.framework(ask),
            Face::FrameworkAgent => self.framework_agent(ask),
            Face::Keys => self.keys(ask),
            Face::Schema => self.schema(ask),
            _ => Err(Fault::new(Code::NotFound, "there is nothing at this path")),
        }
    }

    /// The keys that sign cards; an empty set where none are signed.
    fn keys(&self, ask: &Ask<'_>) -> Result<Page> {
        let media = media::choose(ask.headers, &["application/jwk-set+json", media::JSON])?;
        let keys = self.signer.as_ref().map_or_else(|| serde_json::json!({"keys": []}), |signer| signer.jwks());
        Page::json(media, &keys)
    }

    /// The schema of documents.
    fn schema(&self, ask: &Ask<'_>) -> Result<Page> {
        let media = media::choose(ask.headers, &["application/schema+json", media::JSON])?;
        let none = || Fault::new(Code::NotFound, "no schema of documents is published here");
        Page::json(media, &**self.metadata.as_ref().ok_or_else(none)?)
    }
}

#[cfg(test)]
mod tests;
