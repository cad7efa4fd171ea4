//! The table of fault codes. Responses, metrics, logs and documents all read this table.

/// The party that has to change something for the call to succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The caller: the request, the credential or the rate of calls.
    Caller,
    /// The agent behind the gateway.
    Agent,
    /// The gateway or one of its dependencies.
    Gateway,
}

impl Blame {
    /// Returns the label used in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Agent => "agent",
            Self::Gateway => "gateway",
        }
    }
}

/// A row of the table of fault codes.
#[derive(Debug)]
pub struct FaultCodeRow {
    /// The code's name on the wire, the same in every format.
    pub name: &'static str,
    /// The default HTTP status.
    pub status: u16,
    /// Other HTTP statuses that a fault with this code may have.
    pub other_statuses: &'static [u16],
    /// The party that has to change something.
    pub blame: Blame,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// The `title` of problem+json (RFC 9457 §3.1.4).
    pub title: &'static str,
}

macro_rules! fault_codes {
    ($type:ident; $($code:ident $status:literal $others:expr, $blame:ident, $retry:literal, $title:literal,
        $doc:literal;)*) => {
        /// The codes of AIDIP (R37) and agent:// (R95), and further codes that a gateway needs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $type { $(#[doc = $doc] $code,)* }

        impl $type {
            /// All codes, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$code),*];

            /// Returns the code's row.
            pub const fn row(self) -> &'static FaultCodeRow {
                match self {
                    $(Self::$code => &FaultCodeRow {
                        name: stringify!($code), status: $status, other_statuses: &$others,
                        blame: Blame::$blame, retryable: $retry, title: $title,
                    },)*
                }
            }
        }
    };
}

fault_codes! {
    FaultCode;
    InvalidInput 400 [411, 414, 422, 426, 431, 505], Caller, false, "The request is not valid", "The request is malformed, or its body violates the agent's schema (R32).";
    Unauthorized 401 [], Caller, false, "Valid credentials are required", "The request has no credential, or none that is valid (R37).";
    PermissionDenied 403 [], Caller, false, "The caller does not have permission", "The credential is valid but lacks a scope or a grant, or the agent refuses the call (R95).";
    PaymentRequired 402 [], Caller, false, "A payment is required", "The agent requires a payment, or has no credit left for the call (R91).";
    NotFound 404 [], Caller, false, "The agent was not found", "The agent does not exist, or the caller may not see it (R37).";
    CapabilityNotFound 404 [], Caller, false, "The agent has no such operation", "The operation or path does not exist (R95).";
    MethodNotAllowed 405 [], Caller, false, "The method is not allowed for this resource", "The path exists but does not support the method.";
    NotAcceptable 406 [], Caller, false, "No acceptable media type is available", "No available format satisfies `Accept` (R75).";
    Conflict 409 [], Caller, false, "The request conflicts with the current state", "The agent reports a conflict of state (R91).";
    Gone 410 [], Caller, false, "The resource is no longer available", "The events of a stream or task are no longer stored (R80).";
    PreconditionFailed 412 [], Caller, false, "The document does not satisfy the precondition", "The document does not match the write's `If-Match` or `If-None-Match`.";
    PayloadTooLarge 413 [], Caller, false, "The body is too large", "The body exceeds the limit.";
    UnsupportedMediaType 415 [], Caller, false, "The media type is not supported", "The body's format is not one that the agent accepts.";
    IdempotencyMismatch 422 [], Caller, false, "The idempotency key was used for a different call", "The `Idempotency-Key` was sent before with another body or operation (R45).";
    AmbiguousResponse 422 [], Caller, false, "The request has more than one answer", "The agent found more than one answer and did not choose; the caller can say more precisely what it asks for (R95).";
    RateLimited 429 [], Caller, true, "The rate limit or quota is exceeded", "A rate limit or a quota is exhausted (R5), or the caller has its share of what all callers share.";
    AgentError 502 [500], Agent, false, "The agent failed", "The agent failed, or violated HTTP or its own contract (R38).";
    AgentUnavailable 503 [], Agent, true, "The agent is not available", "The agent is inactive, refuses connections or reports that it is unavailable (R35, R39), or it is unknown while a source of agents was not read yet.";
    Overloaded 503 [], Gateway, true, "The gateway is overloaded", "A concurrency limit is reached, a dependency of the gateway is down, or the gateway stops before the call has ended.";
    Timeout 504 [408], Agent, true, "The call timed out", "The agent, or with 408 the caller, did not finish in time (R96).";
    Internal 500 [], Gateway, false, "The gateway encountered an internal error", "A defect in the gateway.";
}

impl FaultCode {
    /// Returns the code whose name on the wire is `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.row().name == name)
    }

    /// Returns the JSON-RPC 2.0 error code (§5.1): the predefined code if one exists, otherwise a server-defined code.
    pub const fn json_rpc_code(self) -> i64 {
        match self {
            Self::InvalidInput => -32602,
            Self::CapabilityNotFound => -32601,
            Self::Internal => -32603,
            Self::Unauthorized => -32041,
            Self::PaymentRequired => -32042,
            Self::PermissionDenied => -32043,
            Self::NotFound => -32044,
            Self::MethodNotAllowed => -32045,
            Self::NotAcceptable => -32046,
            Self::Conflict => -32049,
            Self::Gone => -32050,
            Self::PreconditionFailed => -32052,
            Self::PayloadTooLarge => -32053,
            Self::UnsupportedMediaType => -32055,
            Self::IdempotencyMismatch => -32062,
            Self::AmbiguousResponse => -32063,
            Self::RateLimited => -32069,
            Self::AgentError => -32072,
            Self::AgentUnavailable => -32073,
            Self::Timeout => -32074,
            Self::Overloaded => -32075,
        }
    }
}
