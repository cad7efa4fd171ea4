//! Version selection (R66–R69): the version of an agent that a call is for is in the path
//! (`/agents/{id}@{version}/invoke`), in the query (`?version=`) or in `X-Agent-Version`; the default is the latest.
//! The versions and their paths are compiled with the agent's route.

use super::header_names::AGENT_VERSION;
use crate::{
    agent::{Agent, AgentVersions, Operation, VersionSelectionError},
    fault::{Fault, FaultCode, FaultRule, Result},
    resolver::version_url,
    values::{form_decode, join_path, json::truncate, percent_decode},
};
use http::{HeaderMap, HeaderValue, uri::PathAndQuery};
use std::sync::Arc;

/// The versions of one agent.
#[derive(Debug, Default)]
pub(super) struct VersionTable {
    versions: AgentVersions,
    compiled: Box<[Arc<CompiledVersion>]>,
    latest: Option<Arc<CompiledVersion>>,
}

/// A version, compiled for calls.
#[derive(Debug)]
pub(super) struct CompiledVersion {
    pub(super) label: Option<HeaderValue>,
    /// Path and query, if they differ from the agent's endpoint.
    pub(super) path: Option<PathAndQuery>,
}

impl VersionTable {
    /// Builds the table from an agent's record. Versions on another origin than the agent are left out, so that a
    /// record cannot direct calls to another host.
    pub(super) fn from_agent(agent: &Agent) -> Self {
        let path_of = |reference: &str| {
            let url = version_url(&agent.endpoint, reference)?;
            join_path(url.path(), "", url.query())
        };
        let versions = agent
            .versions
            .filter(|version| version.location.as_deref().is_none_or(|reference| path_of(reference).is_some()));
        let compile = |label: &str, path| Arc::new(CompiledVersion { label: HeaderValue::from_str(label).ok(), path });
        let compiled =
            versions.iter().map(|version| compile(&version.label, version.location.as_deref().and_then(path_of)));
        let compiled: Box<[Arc<CompiledVersion>]> = compiled.collect();
        let latest = versions.default_version().and_then(|(index, is_own_endpoint)| {
            let latest = compiled.get(index)?;
            // The agent's own version is served at its endpoint, even if the record also names another path.
            Some(if is_own_endpoint {
                Arc::new(CompiledVersion { label: latest.label.clone(), path: None })
            } else {
                Arc::clone(latest)
            })
        });
        Self { versions, compiled, latest }
    }

    /// Selects the requested version, or the latest. If the record of the agent lists no versions, the agent interprets
    /// the query and the header itself; a version in the path is always the gateway's to interpret.
    ///
    /// # Errors
    /// `InvalidInput` for a malformed version or two different ones; `NotAcceptable` for a version that does not exist.
    pub(super) fn select(&self, requested: &RequestedVersion<'_>) -> Result<Option<Arc<CompiledVersion>>> {
        let requested_versions = [requested.path.as_deref(), requested.query.as_deref(), requested.header];
        let mut requested_versions = requested_versions.into_iter().flatten();
        let Some(version) = requested_versions.next() else { return Ok(self.latest.clone()) };
        if self.versions.is_empty() && requested.path.is_none() {
            return Ok(None);
        }
        let index = self.versions.select(version).map_err(|why| self.selection_fault(why, &truncate(version, 64)))?;
        // A range and the exact version that it selects do not differ.
        if requested_versions.any(|other| other != version && self.versions.select(other) != Ok(index)) {
            let message = "Two different versions are requested (state one: in the path, the query or X-Agent-Version)";
            return Err(Fault::new(FaultCode::InvalidInput, message));
        }
        Ok(self.compiled.get(index).cloned())
    }

    fn selection_fault(&self, why: VersionSelectionError, requested: &str) -> Fault {
        let member = if self.versions.is_only_own() { "version" } else { "supportedVersions" };
        let rule = FaultRule::Document(member);
        match why {
            VersionSelectionError::Malformed => Fault::new(
                FaultCode::InvalidInput,
                format!("'{requested}' is not a version (write one as 1.2.3, or a range such as ^1.2 or 1.x)"),
            ),
            VersionSelectionError::Unknown if self.versions.is_empty() => {
                Fault::new(FaultCode::NotAcceptable, "The agent does not list its versions (leave the version out)")
                    .with_rule(rule)
            }
            VersionSelectionError::Unknown => Fault::new(
                FaultCode::NotAcceptable,
                format!("The agent has no version '{requested}' (it has: {})", self.versions.labels()),
            )
            .with_rule(rule),
        }
    }
}

/// The version that a call requests.
#[derive(Debug)]
pub(super) struct RequestedVersion<'a> {
    path: Option<String>,
    query: Option<String>,
    header: Option<&'a str>,
}

impl<'a> RequestedVersion<'a> {
    /// Reads the version from path, query and headers. A `version` in the query is the agent's input if its schema
    /// declares it.
    ///
    /// # Errors
    /// `InvalidInput` for a version that is not text.
    pub(super) fn from_request(
        path: Option<&str>,
        query: Option<&str>,
        headers: &'a HeaderMap,
        declared: bool,
    ) -> Result<Self> {
        let not_text = || Fault::new(FaultCode::InvalidInput, "The version is not text");
        let path = path.map(|path| percent_decode(path).ok_or_else(not_text)).transpose()?;
        let query = query
            .filter(|_| !declared)
            .and_then(|query| query.split('&').find_map(|pair| pair.strip_prefix("version=")));
        let decode = |query: &str| form_decode(query).ok_or_else(not_text);
        let query = query.map(decode).transpose()?;
        let mut values = headers.get_all(&AGENT_VERSION).into_iter();
        let header = values.next().map(|value| value.to_str().map_err(|_| not_text())).transpose()?;
        match values.next() {
            None => Ok(Self { path, query, header: header.map(str::trim) }),
            Some(_) => Err(Fault::new(FaultCode::InvalidInput, "X-Agent-Version appears twice")),
        }
    }

    /// Returns whether a version is requested.
    pub(super) fn is_specified(&self) -> bool {
        self.path.is_some() || self.query.is_some() || self.header.is_some()
    }
}

/// Returns whether an operation of the agent declares `version` as input.
pub(super) fn declares_version_input(agent: &Agent, named_operation: Option<usize>) -> bool {
    let operations = match named_operation {
        Some(at) => agent.operations.get(at..=at).unwrap_or_default(),
        None => agent.operations.as_slice(),
    };
    operations.iter().any(Operation::takes_version)
}
