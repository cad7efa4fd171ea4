//! A call from its first byte to its access-log entry. Dropping a `Call` writes the entry, so every call is counted and
//! logged exactly once however it ends: answered, refused, panicked, cancelled, or abandoned by its caller.

use super::{Gateway, fields::REQUEST_ID, route::Route};
use crate::{
    auth::{Caller, CallerKind},
    fault::{self, Fault},
    telemetry::{Ended, Entry, Group, Tally},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header};
use pingora_http::RequestHeader;
use serde_json::Value;
use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::{Duration, Instant, SystemTime},
};

const TRACE: HeaderName = HeaderName::from_static("traceparent");

/// The state of a call, and how it ended.
#[derive(Debug)]
pub(super) enum Stage {
    /// No response has been written yet. A call that is dropped in this state was cancelled or panicked.
    Open,
    /// Answered with this status.
    Answered(u16),
    /// Refused or failed before a response was written.
    Refused(Fault),
    /// Failed after the head with this status was written.
    Broken(u16, Fault),
    /// The caller left; the status is 0 if no head was written.
    Gone(u16),
}

/// A call, and its access-log entry.
pub(super) struct Call {
    gateway: Arc<Gateway>,
    began: (Instant, SystemTime),
    id: String,
    /// The call id as a header value, for the agent and for the caller.
    id_field: Option<HeaderValue>,
    peer: Option<IpAddr>,
    asked: Option<Asked>,
    route: Option<(Arc<Route>, Option<usize>)>,
    caller: Option<Arc<Caller>>,
    browses: bool,
    /// The input, where it was buffered.
    pub(super) read: OnceLock<Bytes>,
    /// The call, or the call that it is a part of, passed load shedding and is not checked again.
    pub(super) let_in: bool,
    /// Another `Call` continues this one and writes its access-log entry.
    moved: bool,
    /// The CORS origin that may read the response, or `None` for no origin; outer `None`: CORS is not configured.
    pub(super) page: Option<Option<HeaderValue>>,
    pub(super) stage: Stage,
    pub(super) count: Count,
    _flight: Tally,
}

/// Bytes, durations and attempts of a call.
#[derive(Debug, Default)]
pub(super) struct Count {
    pub(super) bytes_in: u64,
    pub(super) bytes_out: u64,
    pub(super) agent_took: Option<Duration>,
    pub(super) attempts: u32,
}

struct Asked {
    method: Method,
    path: Box<str>,
    query_bytes: usize,
    version: Version,
    user_agent: Box<str>,
    trace: Box<str>,
}

impl Call {
    /// Starts the record of a call (step 1) and counts the call as in flight.
    pub(super) fn arrive(gateway: &Arc<Gateway>, peer: Option<IpAddr>) -> Self {
        Self {
            _flight: gateway.metrics.call_begins(),
            gateway: Arc::clone(gateway),
            began: (Instant::now(), SystemTime::now()),
            id: String::new(),
            id_field: None,
            peer,
            asked: None,
            route: None,
            caller: None,
            browses: false,
            read: OnceLock::new(),
            let_in: false,
            moved: false,
            page: None,
            stage: Stage::Open,
            count: Count::default(),
        }
    }

    /// Records what the access log needs of the request head, and sets the call id.
    pub(super) fn asks(&mut self, head: &RequestHeader) {
        let text = |name: &HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        self.is_called(request_id(&head.headers));
        self.asked = Some(Asked {
            method: head.method.clone(),
            path: head.uri.path().into(),
            query_bytes: head.uri.query().map_or(0, str::len),
            version: head.version,
            user_agent: text(&header::USER_AGENT).into(),
            trace: text(&TRACE).split('-').nth(1).filter(|trace| trace.len() == 32).unwrap_or_default().into(),
        });
    }

    /// Marks the call as a subrequest of the call `id`; without an `id` it gets a new one.
    pub(super) fn is_errand(&mut self, id: Option<&str>, agent: &str) {
        self.is_called(id.map_or_else(fresh_id, str::to_owned));
        self.asked = Some(Asked {
            method: Method::POST,
            path: format!("/agents/{agent}/invoke").into(),
            query_bytes: 0,
            version: Version::HTTP_11,
            user_agent: "".into(),
            trace: "".into(),
        });
    }

    /// Returns a record for the background work of this call, which outlives its response.
    pub(super) fn beside(&self) -> Self {
        let mut work = Self::arrive(&self.gateway, self.peer);
        let agent = self.route.as_ref().map_or("", |(route, _)| route.agent.id.as_str());
        work.is_errand(Some(&self.id), agent);
        work.caller.clone_from(&self.caller);
        work.route.clone_from(&self.route);
        work
    }

    /// Returns the call id, which the access log and the caller receive.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Returns the call id as a header value.
    pub(super) fn id_field(&self) -> Option<HeaderValue> {
        self.id_field.clone()
    }

    fn is_called(&mut self, id: String) {
        self.id_field = HeaderValue::from_str(&id).ok();
        self.id = id;
    }

    /// Returns the id of the JSON-RPC request in the input, if the input was buffered and is one.
    pub(super) fn rpc_id(&self) -> Option<Value> {
        self.read.get().and_then(|body| fault::rpc_id(body))
    }

    /// Returns when the call arrived.
    pub(super) fn arrived(&self) -> Instant {
        self.began.0
    }

    /// Returns the caller, once authenticated.
    pub(super) fn caller(&self) -> Option<&Caller> {
        self.caller.as_deref()
    }

    pub(super) fn is_from(&mut self, caller: &Arc<Caller>) {
        self.caller = Some(Arc::clone(caller));
    }

    pub(super) fn is_for(&mut self, route: &Arc<Route>) {
        self.route = Some((Arc::clone(route), None));
    }

    /// Marks the call as a request that the gateway answers itself, logged as `directory`.
    pub(super) fn browses(&mut self) {
        self.browses = true;
    }

    pub(super) fn operates(&mut self, operation: usize) {
        if let Some((_, at)) = &mut self.route {
            *at = Some(operation);
        }
    }

    /// Moves the call out, to continue after its request was answered with 101; the rest left here writes no entry.
    pub(super) fn go_on(&mut self) -> Self {
        let mut left = Self::arrive(&self.gateway, self.peer);
        left.moved = true;
        left.stage = Stage::Answered(101);
        std::mem::replace(self, left)
    }

    /// Sets a new id if the request had no readable head.
    pub(super) fn ensure_id(&mut self) {
        if self.id.is_empty() {
            self.is_called(fresh_id());
        }
    }

    fn group(&self) -> Group {
        match &self.caller {
            Some(caller) => self.gateway.metrics.group(group(caller.kind), caller.tier.as_deref()),
            None => Group::NONE,
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.moved {
            return;
        }
        let (status, fault, aborted) = match &self.stage {
            Stage::Open if std::thread::panicking() => (0, None, "panicked"),
            Stage::Open => (0, None, "cancelled"),
            Stage::Answered(status) => (*status, None, ""),
            Stage::Refused(fault) => (fault.http_status(), Some(fault), ""),
            Stage::Broken(status, fault) => (*status, Some(fault), "broken off"),
            Stage::Gone(status) => (*status, None, "caller gone"),
        };
        let total = self.began.0.elapsed();
        let route = self.route.as_ref().map(|(route, _)| &**route);
        let operation = self.route.as_ref().map_or(self.browses.then_some(0), |(_, at)| *at);
        let metrics = route.map_or(self.gateway.metrics.unknown(), |route| &route.metrics);
        let code = fault.map(Fault::code);
        let ended = Ended { operation, group: self.group(), code, total, agent: self.count.agent_took };
        match self.stage {
            Stage::Open | Stage::Gone(_) => metrics.record_aborted(&ended),
            _ => metrics.record(&ended),
        }
        let mut entry = Entry::new(self.began.1, &self.id);
        if let Some(asked) = &self.asked {
            entry.method = asked.method.as_str();
            entry.path = &asked.path;
            entry.query_bytes = asked.query_bytes;
            entry.protocol = protocol(asked.version);
            entry.user_agent = &asked.user_agent;
            entry.trace = &asked.trace;
        }
        if self.browses {
            entry.operation = "directory";
        }
        if let Some(route) = route {
            entry.agent = route.agent.id.as_str();
            entry.operation = operation.and_then(|at| route.operations.get(at)).map_or("", |operation| &operation.name);
        }
        if let Some(caller) = &self.caller {
            entry.caller = &caller.id;
            entry.credential = caller.kind.as_str();
        }
        (entry.peer, entry.status, entry.fault, entry.aborted) = (self.peer, status, fault, aborted);
        (entry.bytes_in, entry.bytes_out) = (self.count.bytes_in, self.count.bytes_out);
        (entry.total, entry.agent_took, entry.attempts) = (total, self.count.agent_took, self.count.attempts);
        self.gateway.log.write(&entry);
    }
}

/// Returns the caller's `X-Request-ID` if it is safe to log and to echo, else a new id (R34).
fn request_id(headers: &HeaderMap) -> String {
    let safe = |id: &&str| {
        (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(safe);
    given.map_or_else(fresh_id, str::to_owned)
}

/// Returns the metrics label of a kind of credential.
fn group(kind: CallerKind) -> Group {
    match kind {
        CallerKind::Key => Group::KEY,
        CallerKind::Bearer => Group::BEARER,
        CallerKind::Certificate => Group::CERTIFICATE,
        CallerKind::Anonymous => Group::ANONYMOUS,
    }
}

fn fresh_id() -> String {
    uuid::Uuid::now_v7().simple().encode_lower(&mut uuid::Uuid::encode_buffer()).to_owned()
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2",
        _ => "HTTP/1.1",
    }
}
