//! A call to the directory and its response.

use super::{caller_pages::CallLimits, directory_request::DirectoryRequest, media_types};
use crate::{
    agent::Agent,
    audit::AuditLog,
    auth::Caller,
    fault::{Fault, FaultCode, Result},
    registry::Publisher,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use serde_json::Value;
use std::{net::IpAddr, sync::Arc};

/// The agents visible to one caller, at one moment.
pub trait AgentVisibility: Send + Sync {
    /// Returns the agent `id` if it is visible to the caller.
    fn visible_agent(&self, id: &str) -> Option<Arc<Agent>>;
    /// Returns the fault for the agent `id`, which is unknown or invisible to the caller.
    fn missing_agent_fault(&self, _id: &str) -> Fault {
        no_agent_fault()
    }
    /// Returns whether a document of an agent is visible to the caller. This depends on the document and on what decides
    /// which agents the caller may call, and not on the agents that are served at this moment: the search index may be
    /// ahead of them or behind, and keeps the answer.
    fn is_visible(&self, agent: &Agent) -> bool;
    /// Returns the limits of the caller's calls to the agent `id`; `None` if the caller may not call it.
    fn call_limits(&self, _id: &str) -> Option<CallLimits> {
        None
    }
    /// Returns whether an input of the operation at `index` passes the contract of the agent `id`. An input whose check
    /// takes long passes not.
    fn accepts_input(&self, _id: &str, _index: usize, _input: &Value) -> bool {
        true
    }
}

/// A call to the directory.
pub struct DirectoryCall<'a> {
    /// The request, by its path.
    pub request: DirectoryRequest,
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
    pub visibility: &'a dyn AgentVisibility,
    /// The gateway's URL as the caller addressed it: `https://host[:port]`, without a trailing slash.
    pub base_url: &'a str,
    /// Where changes are recorded.
    pub audit: ChangeRecord<'a>,
}

/// Where a change is recorded, and the request that makes it.
#[derive(Clone, Copy, Default)]
pub struct ChangeRecord<'a> {
    /// The audit log; `None` records nothing.
    pub log: Option<&'a Arc<AuditLog>>,
    /// The id of the request.
    pub request_id: &'a str,
    /// The address of the client.
    pub address: Option<IpAddr>,
}

impl<'a> DirectoryCall<'a> {
    /// Returns the agent of the path.
    ///
    /// # Errors
    /// The fault that a call to the agent gets as well, the same for an unknown agent and for one that is invisible to the
    /// caller: `NotFound`, `AgentUnavailable` before every required source was read once, or `Unauthorized` for a caller
    /// without a credential. `PermissionDenied` if the configuration reveals which agents exist.
    pub(super) fn requested_agent(&self) -> Result<Arc<Agent>> {
        self.visibility.visible_agent(self.id).ok_or_else(|| self.visibility.missing_agent_fault(self.id))
    }

    /// Returns the caller as a publisher.
    pub(super) fn publisher(&self) -> Publisher<'a> {
        Publisher { id: &self.caller.id, owner_key: &self.caller.owner_key, groups: &self.caller.groups }
    }
}

/// Builds the fault for an agent that is unknown or invisible to the caller.
#[cold]
pub(super) fn no_agent_fault() -> Fault {
    Fault::from(FaultCode::NotFound)
}

/// Response of the directory.
#[derive(Debug)]
pub struct DirectoryResponse {
    /// Status.
    pub status: StatusCode,
    /// Headers, without those of framing.
    pub headers: HeaderMap,
    /// Body, also for `HEAD`.
    pub body: Bytes,
}

impl DirectoryResponse {
    /// Builds an uncacheable response, as to a write.
    pub(super) fn uncacheable(status: StatusCode, body: impl Into<Bytes>) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let body = body.into();
        if !body.is_empty() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_types::JSON));
        }
        Self { status, headers, body }
    }

    /// Adds a header; an invalid value is ignored.
    pub(super) fn with_header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }
}
