//! A call from its first byte to its record. Dropping it writes the record, so that a call is counted and logged
//! once however it ends: answered, refused, panicked, cancelled, its caller gone.

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

/// How a call ends.
#[derive(Debug)]
pub(super) enum Stage {
    /// Nothing has been answered yet; dropped like this, it was cancelled or it panicked.
    Open,
    /// Served with this status.
    Answered(u16),
    /// Refused or failed before anything was answered.
    Refused(Fault),
    /// Failed after the head was written with this status.
    Broken(u16, Fault),
    /// The caller left.
    Gone(u16),
}

/// A call.
pub(super) struct Call {
    gateway: Arc<Gateway>,
    began: (Instant, SystemTime),
    id: String,
    /// The same as a header field's value, for the agent and for the caller.
    id_field: Option<HeaderValue>,
    peer: Option<IpAddr>,
    asked: Option<Asked>,
    route: Option<(Arc<Route>, Option<usize>)>,
    caller: Option<Arc<Caller>>,
    browses: bool,
    /// The input, where it was read whole.
    pub(super) read: OnceLock<Bytes>,
    /// Another goes on with it, and will write its record.
    moved: bool,
    /// The page that may read the answer, or none; not there where pages are not told anything.
    pub(super) page: Option<Option<HeaderValue>>,
    pub(super) stage: Stage,
    pub(super) count: Count,
    _flight: Tally,
}

/// What moved.
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
    /// Step 1.
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
            moved: false,
            page: None,
            stage: Stage::Open,
            count: Count::default(),
        }
    }

    /// What the head of the request says.
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

    /// It is no request of its own, but part of the call `id`, where that is named.
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

    /// A record of the same call's work, which goes on after the call was answered.
    pub(super) fn beside(&self) -> Self {
        let mut work = Self::arrive(&self.gateway, self.peer);
        let agent = self.route.as_ref().map_or("", |(route, _)| route.agent.id.as_str());
        work.is_errand(Some(&self.id), agent);
        work.caller.clone_from(&self.caller);
        work.route.clone_from(&self.route);
        work
    }

    /// The id under which the log has this call, and which the caller is told.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// The same as a header field's value.
    pub(super) fn id_field(&self) -> Option<HeaderValue> {
        self.id_field.clone()
    }

    fn is_called(&mut self, id: String) {
        self.id_field = HeaderValue::from_str(&id).ok();
        self.id = id;
    }

    /// The id of the JSON-RPC request that this call is, if it is one and was read.
    pub(super) fn rpc_id(&self) -> Option<Value> {
        self.read.get().and_then(|body| fault::rpc_id(body))
    }

    /// When the call arrived.
    pub(super) fn arrived(&self) -> Instant {
        self.began.0
    }

    pub(super) fn is_from(&mut self, caller: &Arc<Caller>) {
        self.caller = Some(Arc::clone(caller));
    }

    pub(super) fn is_for(&mut self, route: &Arc<Route>) {
        self.route = Some((Arc::clone(route), None));
    }

    /// It asks the directory, not an agent.
    pub(super) fn browses(&mut self) {
        self.browses = true;
    }

    pub(super) fn operates(&mut self, operation: usize) {
        if let Some((_, at)) = &mut self.route {
            *at = Some(operation);
        }
    }

    /// Takes the call to where it goes on after its request was answered; what is left here writes no record.
    pub(super) fn go_on(&mut self) -> Self {
        let mut left = Self::arrive(&self.gateway, self.peer);
        left.moved = true;
        left.stage = Stage::Answered(101);
        std::mem::replace(self, left)
    }

    /// An id where the request had no readable head.
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

/// The caller's `X-Request-ID` where it is one that can be logged and told back, else a new one (R34).
fn request_id(headers: &HeaderMap) -> String {
    let safe = |id: &&str| {
        (1..=128).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok()).filter(safe);
    given.map_or_else(fresh_id, str::to_owned)
}

/// The label of a kind of credential.
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
