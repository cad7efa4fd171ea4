//! The table of failures. Response, metric, log and the documents read this and nothing else.

/// Who has to change something for the call to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The caller: the request, the credential or the pace.
    Caller,
    /// The agent behind the gateway.
    Agent,
    /// The gateway or what it depends on.
    Gateway,
}

impl Blame {
    /// The word in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Agent => "agent",
            Self::Gateway => "gateway",
        }
    }
}

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    /// The name on the wire, in every format.
    pub name: &'static str,
    /// The usual HTTP status.
    pub status: u16,
    /// Other statuses that the code may leave with.
    pub also: &'static [u16],
    /// Who has to change something.
    pub blame: Blame,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// The `title` of problem+json (RFC 9457 §3.1.4).
    pub title: &'static str,
}

macro_rules! codes {
    ($($code:ident $status:literal $also:expr, $blame:ident, $retry:literal, $title:literal, $doc:literal;)*) => {
        /// The codes of AIDIP (R37) and agent:// (R95), and those that a gateway needs besides.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $(#[doc = $doc] $code,)* }

        impl Code {
            /// Every code, in the table's order.
            pub const ALL: &'static [Self] = &[$(Self::$code),*];

            /// The code's row.
            pub const fn row(self) -> &'static Row {
                match self {
                    $(Self::$code => &Row {
                        name: stringify!($code), status: $status, also: &$also,
                        blame: Blame::$blame, retryable: $retry, title: $title,
                    },)*
                }
            }
        }
    };
}

codes! {
    InvalidInput 400 [411, 414, 426, 431, 505], Caller, false, "The request is not valid", "A malformed request, or a body that breaks the agent's schema (R32).";
    Unauthorized 401 [], Caller, false, "A valid credential is required", "No credential, or none that holds (R37).";
    PermissionDenied 403 [], Caller, false, "The caller may not do this", "A valid credential that lacks a scope or a grant (R95).";
    NotFound 404 [], Caller, false, "There is no such agent", "An unknown agent, or one that the caller may not see (R37).";
    CapabilityNotFound 404 [], Caller, false, "The agent has no such operation", "An unknown operation or path (R95).";
    MethodNotAllowed 405 [], Caller, false, "The method is not allowed here", "The path exists with another method.";
    NotAcceptable 406 [], Caller, false, "No acceptable format", "No format that `Accept` allows (R75).";
    Conflict 409 [], Caller, false, "The state does not allow this", "The agent reports a conflict of state (R91).";
    Gone 410 [], Caller, false, "It is no longer there", "Events of a stream or task that are no longer kept (R80).";
    PreconditionFailed 412 [], Caller, false, "The document is not the one expected", "A write guarded by `If-Match` or `If-None-Match` whose document has another state.";
    PayloadTooLarge 413 [], Caller, false, "The body is too large", "A body beyond the bound in force.";
    UnsupportedMediaType 415 [], Caller, false, "The media type is not supported", "A body that is not in a format the agent takes.";
    IdempotencyMismatch 422 [], Caller, false, "The idempotency key belongs to another call", "An `Idempotency-Key` that was sent with another body or operation (R45).";
    RateLimited 429 [], Caller, true, "Too many calls", "A rate or a quota is used up (R5).";
    AgentError 502 [500], Agent, false, "The agent failed", "The agent failed, or broke HTTP or its own contract (R38).";
    AgentUnavailable 503 [], Agent, true, "The agent is not available", "The agent is inactive, refuses connections or says so itself (R35, R39).";
    Overloaded 503 [], Gateway, true, "Too busy", "A concurrency bound is reached, or something the gateway needs is down.";
    Timeout 504 [408], Agent, true, "Out of time", "The agent, or with 408 the caller, did not finish in time (R96).";
    Internal 500 [], Gateway, false, "The gateway failed", "A defect in the gateway.";
}

impl Code {
    /// The code with this name on the wire.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.row().name == name)
    }
}
