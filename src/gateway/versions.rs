//! Which version of an agent a call is for (R66–R69): stated in the path (`/agents/{id}@{version}/invoke`), in the
//! query (`?version=`) or in `X-Agent-Version`; the latest where nothing is stated. What can be asked for, and where
//! it is, was worked out when the agent's record was read.

use super::route::Route;
use crate::{
    agent::{Agent, Operation, Unmet, Versions},
    fault::{Code, Fault, Result},
    names::version_place,
    unit::json::cut,
};
use http::{HeaderMap, HeaderName, HeaderValue, uri::PathAndQuery};
use std::sync::Arc;

/// The field in which versions are asked for, and told.
pub(super) const FIELD: HeaderName = HeaderName::from_static("x-agent-version");

/// The versions of one agent.
#[derive(Debug, Default)]
pub(super) struct Table {
    versions: Versions,
    ready: Box<[Arc<Ready>]>,
    usual: Option<Arc<Ready>>,
}

/// A version, ready to be called.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) label: Option<HeaderValue>,
    /// Path and query where they are not those of the agent's endpoint.
    pub(super) path: Option<PathAndQuery>,
}

impl Table {
    /// The versions of which an agent's record tells; those whose place is on another origin than the agent are left
    /// out, so that nobody reaches one through its record.
    pub(super) fn of(agent: &Agent) -> Self {
        let place = |reference: &str| {
            let url = version_place(&agent.endpoint, reference)?;
            let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
            format!("{}{query}", url.path()).parse::<PathAndQuery>().ok()
        };
        let versions = agent.versions.only(|served| served.place.as_deref().is_none_or(|at| place(at).is_some()));
        let ready = |label: &str, path| Arc::new(Ready { label: HeaderValue::from_str(label).ok(), path });
        let each = versions.iter().map(|served| ready(&served.label, served.place.as_deref().and_then(place)));
        let each: Box<[Arc<Ready>]> = each.collect();
        let usual = versions.latest().and_then(|(at, itself)| {
            let latest = each.get(at)?;
            // The agent's own version is at its endpoint, wherever else it may be as well.
            Some(if itself { Arc::new(Ready { label: latest.label.clone(), path: None }) } else { Arc::clone(latest) })
        });
        Self { versions, ready: each, usual }
    }

    /// The version that is asked for, or the latest. An agent whose record tells of none is left to read the caller's
    /// words itself, unless they are in the path, which is the gateway's.
    ///
    /// # Errors
    /// `InvalidInput` for what is no version, or for two that differ; `NotAcceptable` for one that there is not.
    pub(super) fn choose(&self, asked: &Asked<'_>) -> Result<Option<Arc<Ready>>> {
        let stated = [asked.path.as_deref(), asked.query.as_deref(), asked.field];
        let mut stated = stated.into_iter().flatten();
        let Some(version) = stated.next() else { return Ok(self.usual.clone()) };
        if self.versions.is_empty() && asked.path.is_none() {
            return Ok(None);
        }
        let at = self.versions.pick(version).map_err(|why| self.unmet(why, &cut(version, 64)))?;
        // A range and the version that was found for it are two words for one.
        if stated.any(|other| other != version && self.versions.pick(other) != Ok(at)) {
            let message = "two different versions are asked for (state one: in the path, the query or X-Agent-Version)";
            return Err(Fault::new(Code::InvalidInput, message));
        }
        Ok(self.ready.get(at).cloned())
    }

    fn unmet(&self, why: Unmet, asked: &str) -> Fault {
        match why {
            Unmet::Malformed => Fault::new(
                Code::InvalidInput,
                format!("'{asked}' is no version (write one as 1.2.3, or a range such as ^1.2 or 1.x)"),
            ),
            Unmet::Unknown if self.versions.is_empty() => {
                Fault::new(Code::NotAcceptable, "the agent does not say which versions it has (leave the version out)")
            }
            Unmet::Unknown => Fault::new(
                Code::NotAcceptable,
                format!("the agent has no version '{asked}' (it has: {})", self.versions.labels()),
            ),
        }
    }
}

/// What a call says of the version that it is for.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    path: Option<String>,
    query: Option<String>,
    field: Option<&'a str>,
}

impl<'a> Asked<'a> {
    /// Gathers what is said where. In the query, `version` is the agent's own input where a schema declares it.
    ///
    /// # Errors
    /// `InvalidInput` for words that are not text.
    pub(super) fn of(path: Option<&str>, query: Option<&str>, headers: &'a HeaderMap, declared: bool) -> Result<Self> {
        let broken = || Fault::new(Code::InvalidInput, "the version is not text");
        let path = path.map(|path| crate::agent::segment(path).ok_or_else(broken)).transpose()?;
        let query = query
            .filter(|_| !declared)
            .and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("version=")));
        let plain = |query: &str| crate::agent::segment(&query.replace('+', "%20")).ok_or_else(broken);
        let query = query.map(plain).transpose()?;
        let mut fields = headers.get_all(&FIELD).into_iter();
        let field = fields.next().map(|value| value.to_str().map_err(|_| broken())).transpose()?;
        match fields.next() {
            None => Ok(Self { path, query, field: field.map(str::trim) }),
            Some(_) => Err(Fault::new(Code::InvalidInput, "X-Agent-Version stands there twice")),
        }
    }

    /// Whether anything is said of it.
    pub(super) fn is_stated(&self) -> bool {
        self.path.is_some() || self.query.is_some() || self.field.is_some()
    }
}

/// Whether an operation of the agent takes `version` as its own input.
pub(super) fn declared(route: &Route, named: Option<usize>) -> bool {
    let operations = match named {
        Some(at) => route.agent.operations.get(at..=at).unwrap_or_default(),
        None => route.agent.operations.as_slice(),
    };
    operations.iter().any(Operation::takes_version)
}
