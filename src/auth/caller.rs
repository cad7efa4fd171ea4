//! Who calls, once that is known; what was presented, and what an agent asks.

use super::{GrantSet, Peer};
use crate::{agent::Authentication, fault::Fault};
use std::sync::Arc;

/// Someone the gateway knows. Made by an authenticator, shared by calls.
#[derive(Debug, PartialEq, Eq)]
pub struct Caller {
    /// `key:team-a`, `oauth:client-7`, `cert:robot.example`, `browser:https://app.example`, or `anonymous`.
    pub id: Arc<str>,
    /// Which credential told.
    pub kind: CallerKind,
    /// The groups it is in.
    pub groups: Arc<[Arc<str>]>,
    /// The OAuth scopes it holds; empty unless a token told.
    pub scopes: Arc<[Arc<str>]>,
    /// Its tier, which limits may refer to.
    pub tier: Option<Arc<str>>,
    /// The grants that name it.
    pub grants: GrantSet,
}

/// Which credential told who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallerKind {
    /// An API key.
    Key,
    /// A bearer token.
    Bearer,
    /// A client certificate.
    Certificate,
    /// None.
    Anonymous,
}

impl CallerKind {
    /// The word in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Bearer => "bearer",
            Self::Certificate => "certificate",
            Self::Anonymous => "anonymous",
        }
    }
}

/// What a request carries that may tell who calls.
#[derive(Clone, Copy, Debug)]
pub struct Presented<'a> {
    /// The request's header fields.
    pub headers: &'a http::HeaderMap,
    /// The client certificate of the connection, verified by the listener.
    pub peer: Option<&'a Peer>,
}

/// What the agent in question asks of callers.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Its `authentication`.
    pub authentication: &'a Authentication,
    /// The grants that name it, from the same `Auth`.
    pub grants: &'a GrantSet,
}

/// A caller that goes no further.
#[derive(Debug)]
pub struct Refusal {
    /// What it reads.
    pub fault: Fault,
    /// Who it is, for the log, where that is known.
    pub caller: Option<Arc<Caller>>,
}

/// What an authenticator says of a request.
#[derive(Debug)]
pub(super) enum Verdict {
    /// This is the caller.
    Known(Arc<Caller>),
    /// Nothing of this kind was presented.
    NotMine,
    /// It was presented and does not hold; for the caller, and for the log.
    Bad(Bad),
    /// It cannot be told now: 503, never 401.
    CannotTell(Fault),
}

/// Why a credential does not hold.
#[derive(Debug)]
pub(super) struct Bad {
    /// For the caller: never more than the caller could know of its own credential.
    pub(super) why: &'static str,
    /// For the log.
    pub(super) detail: Option<String>,
}

impl Bad {
    #[cold]
    pub(super) fn new(why: &'static str) -> Self {
        Self { why, detail: None }
    }

    pub(super) fn detail(mut self, detail: impl ToString) -> Self {
        self.detail = Some(detail.to_string());
        self
    }
}

/// The longest name or group; what is longer is no name.
const LONGEST: usize = 256;

/// Whether `text` can be a caller's name or group: it goes to logs and into patterns.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= LONGEST && !text.chars().any(char::is_control)
}

/// Seconds since 1970.
pub(super) fn now() -> i64 {
    time::OffsetDateTime::now_utc().unix_timestamp()
}
