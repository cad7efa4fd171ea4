//! Version selection (R66–R69): the version of an agent that a call is for is in the path
//! (`/agents/{id}@{version}/invoke`), in the query (`?version=`) or in `X-Agent-Version`; the default is the latest.
//! The versions and their paths are computed when the agent's record is read.

use super::route::Route;
use crate::{
    agent::{Agent, Operation, Unmet, Versions},
    fault::{Code, Fault, Result},
    names::version_place,
    unit::json::cut,
};
use http::{HeaderMap, HeaderName, HeaderValue, uri::PathAndQuery};
use std::sync::Arc;

/// The header that requests a version, and names the version in responses.
pub(super) const FIELD: HeaderName = HeaderName::from_static("x-agent-version");

/// The versions of one agent.
#[derive(Debug, Default)]
pub(super) struct Table {
    versions: Versions,
    ready: Box<[Arc<Ready>]>,
    usual: Option<Arc<Ready>>,
}

/// A version, compiled for calls.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) label: Option<HeaderValue>,
    /// Path and query, if they differ from the agent's endpoint.
    pub(super) path: Option<PathAndQuery>,
}

impl Table {
    /// Builds the table from an agent's record. Versions on another origin than the agent are left out, so that a
    /// record cannot direct calls to another host.
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
            // The agent's own version is served at its endpoint, even if the record also names another path.
            Some(if itself { Arc::new(Ready { label: latest.label.clone(), path: None }) } else { Arc::clone(latest) })
        });
        Self { versions, ready: each, usual }
    }

    /// Selects the requested version, or the latest. If the record of the agent lists no versions, the agent interprets
    /// the query and the header itself; a version in the path is always the gateway's to interpret.
    ///
    /// # Errors
    /// `InvalidInput` for a malformed version or two different ones; `NotAcceptable` for a version that does not exist.
    pub(super) fn choose(&self, asked: &Asked<'_>) -> Result<Option<Arc<Ready>>> {
        let stated = [asked.path.as_deref(), asked.query.as_deref(), asked.field];
        let mut stated = stated.into_iter().flatten();
        let Some(version) = stated.next() else { return Ok(self.usual.clone()) };
        if self.versions.is_empty() && asked.path.is_none() {
            return Ok(None);
        }
        let at = self.versions.pick(version).map_err(|why| self.unmet(why, &cut(version, 64)))?;
        // A range and the exact version that it selects do not differ.
        if stated.any(|other| other != version && self.versions.pick(other) != Ok(at)) {
            let message = "Two different versions are requested (state one: in the path, the query or X-Agent-Version)";
            return Err(Fault::new(Code::InvalidInput, message));
        }
        Ok(self.ready.get(at).cloned())
    }

    fn unmet(&self, why: Unmet, asked: &str) -> Fault {
        match why {
            Unmet::Malformed => Fault::new(
                Code::InvalidInput,
                format!("'{asked}' is not a version (write one as 1.2.3, or a range such as ^1.2 or 1.x)"),
            ),
            Unmet::Unknown if self.versions.is_empty() => {
                Fault::new(Code::NotAcceptable, "The agent does not list its versions (leave the version out)")
            }
            Unmet::Unknown => Fault::new(
                Code::NotAcceptable,
                format!("The agent has no version '{asked}' (it has: {})", self.versions.labels()),
            ),
        }
    }
}

/// The version that a call requests.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    path: Option<String>,
    query: Option<String>,
    field: Option<&'a str>,
}

impl<'a> Asked<'a> {
    /// Reads the version from path, query and headers. A `version` in the query is the agent's input if its schema
    /// declares it.
    ///
    /// # Errors
    /// `InvalidInput` for a version that is not text.
    pub(super) fn of(path: Option<&str>, query: Option<&str>, headers: &'a HeaderMap, declared: bool) -> Result<Self> {
        let broken = || Fault::new(Code::InvalidInput, "The version is not text");
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
            Some(_) => Err(Fault::new(Code::InvalidInput, "X-Agent-Version appears twice")),
        }
    }

    /// Returns whether a version is requested.
    pub(super) fn is_stated(&self) -> bool {
        self.path.is_some() || self.query.is_some() || self.field.is_some()
    }
}

/// Returns whether an operation of the agent declares `version` as input.
pub(super) fn declared(route: &Route, named: Option<usize>) -> bool {
    let operations = match named {
        Some(at) => route.agent.operations.get(at..=at).unwrap_or_default(),
        None => route.agent.operations.as_slice(),
    };
    operations.iter().any(Operation::takes_version)
}
