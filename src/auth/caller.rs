//! Caller identity, the credentials that a request presents, and what an agent requires.

use super::{ClientCertificate, GrantSet};
use crate::{agent::Authentication, fault::Fault};
use std::sync::Arc;

/// An authenticated caller, shared between its calls.
#[derive(Debug, PartialEq, Eq)]
pub struct Caller {
    /// `key:team-a`, `oauth:client-7`, `cert:robot.example`, `browser:https://app.example`, or `anonymous`.
    pub id: Arc<str>,
    /// Kind of the credential that authenticated the caller.
    pub kind: CallerKind,
    /// Groups of the caller.
    pub groups: Arc<[Arc<str>]>,
    /// OAuth scopes; empty unless a token lists them.
    pub scopes: Arc<[Arc<str>]>,
    /// Tier, which limits may refer to.
    pub tier: Option<Arc<str>>,
    /// Grants that name the caller.
    pub grants: GrantSet,
}

/// Kind of the credential that authenticated a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallerKind {
    /// An API key.
    ApiKey,
    /// A bearer token.
    Bearer,
    /// A client certificate.
    Certificate,
    /// No credential.
    Anonymous,
}

impl CallerKind {
    /// Returns the name in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ApiKey => "key",
            Self::Bearer => "bearer",
            Self::Certificate => "certificate",
            Self::Anonymous => "anonymous",
        }
    }
}

/// Credentials of a request.
#[derive(Clone, Copy, Debug)]
pub struct PresentedCredentials<'a> {
    /// Header fields of the request.
    pub headers: &'a http::HeaderMap,
    /// Client certificate of the connection, verified by the listener.
    pub client_certificate: Option<&'a ClientCertificate>,
}

/// What an agent requires of callers.
#[derive(Clone, Copy, Debug)]
pub struct AgentAuthRequirements<'a> {
    /// `authentication` of the agent's document.
    pub authentication: &'a Authentication,
    /// Grants that name the agent, from the same authorizer.
    pub grants: &'a GrantSet,
}

/// A refused call.
#[derive(Debug)]
pub struct AuthRefusal {
    /// Fault for the caller.
    pub fault: Fault,
    /// The caller, for the log, if authenticated.
    pub caller: Option<Arc<Caller>>,
}

/// Result of one authenticator for a request.
#[derive(Debug)]
pub(super) enum AuthenticationResult {
    /// The credential is valid: the caller.
    Authenticated(Arc<Caller>),
    /// The request has no credential of this kind.
    NotPresented,
    /// The credential is not valid.
    Invalid(InvalidCredential),
    /// The credential cannot be checked at the moment: 503, never 401.
    Unavailable(Fault),
}

/// Why a credential is not valid.
#[derive(Debug)]
pub(super) struct InvalidCredential {
    /// Reason for the caller; reveals nothing beyond the caller's own credential.
    pub(super) reason: &'static str,
    /// Detail for the log.
    pub(super) detail: Option<String>,
}

impl InvalidCredential {
    #[cold]
    pub(super) fn new(reason: &'static str) -> Self {
        Self { reason, detail: None }
    }

    pub(super) fn with_detail(mut self, detail: impl ToString) -> Self {
        self.detail = Some(detail.to_string());
        self
    }
}

/// Maximum length of a name or group, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// Returns whether `text` is valid as a caller's name or group, which appears in logs and is matched by patterns.
pub(super) fn is_valid_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_NAME_BYTES && !text.chars().any(char::is_control)
}

/// Returns the current Unix time in seconds.
pub(super) fn unix_now() -> i64 {
    time::OffsetDateTime::now_utc().unix_timestamp()
}
