//! The faces of discovery: what the gateway says of its agents, and how they are published, in each of the forms that
//! clients read. It renders answers; the session, the credentials and the errors' form are `gateway`'s. It shows a
//! caller only what [`Sight`] shows.

use crate::{
    agent::Agent,
    auth::Caller,
    fault::{Code, Fault, Result},
    registry::Registry,
    search, seal,
};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::SystemTime};

/// How agents are found and described.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Directory")]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How agents are searched for.
    pub search: search::Config,
}

/// Something that can be asked of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// `/agents`
    Agents,
}

/// Where each face is, in the syntax of `matchit`.
pub const PATHS: &[(&str, Face)] = &[("/agents", Face::Agents)];

impl Face {
    /// The methods that it takes.
    pub fn methods(self) -> &'static [Method] {
        &[Method::GET, Method::HEAD]
    }
}

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
    /// The body.
    pub body: Bytes,
}

/// Answers what is asked of the agents.
#[derive(Debug)]
pub struct Directory {
    /// Finds them.
    pub index: Arc<search::Index>,
    /// Where they are published; none where nothing can be.
    pub registry: Option<Arc<Registry>>,
    /// Signs cards; none where there is no key.
    pub signer: Option<Arc<seal::Signer>>,
    /// The settings.
    pub config: Config,
}

impl Directory {
    /// Answers.
    ///
    /// # Errors
    /// Whatever the caller has to read instead.
    pub async fn answer(&self, ask: Ask<'_>) -> Result<Answer> {
        let _ = ask;
        Err(Fault::new(Code::NotFound, "there is nothing at this path"))
    }
}
