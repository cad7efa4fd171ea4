//! The labels with a fixed set of values: one enum per label, so that counting is an array index.

use crate::fault::{Blame, CallProgress, Fault, FaultCode};

/// Defines an enum whose variants are the values of one label.
macro_rules! label {
    ($(#[$about:meta])* $type:ident { $($value:ident $name:literal $doc:literal;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type { $(#[doc = $doc] $value,)* }

        impl $type {
            /// All values, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$value),*];

            /// Returns the label value.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$value => $name,)* }
            }

            /// Returns what the value means.
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$value => $doc,)* }
            }

            /// All label values, in declaration order.
            pub(super) const NAMES: &'static [&'static str] = &[$($name),*];
        }
    };
}
pub(super) use label;

label! {
    /// The outcome of accepting a connection.
    ConnectionOutcome {
        Accepted "accepted" "The connection was accepted.";
        Refused "refused" "The connection was closed at once, because too many were open.";
        RefusedByAddress "refused_address" "The connection was closed at once, because its address had too many open.";
        RefusedHandshake "refused_handshake" "The connection was closed at once, because its address had too many TLS handshakes in progress.";
        HandshakeFailed "handshake_failed" "The TLS handshake failed or timed out.";
        ProxyHeaderInvalid "proxy_header_invalid" "A trusted proxy sent no valid PROXY protocol header in time.";
    }
}

label! {
    /// The outcome of a TLS handshake with a caller: the version that was negotiated, or none.
    TlsHandshake {
        Tls12 "1.2" "The connection uses TLS 1.2.";
        Tls13 "1.3" "The connection uses TLS 1.3.";
        Failed "failed" "The handshake failed or timed out.";
    }
}

label! {
    /// The protocol of a response.
    ResponseProtocol {
        Http10 "HTTP/1.0" "HTTP/1.0.";
        Http11 "HTTP/1.1" "HTTP/1.1.";
        Http2 "HTTP/2" "HTTP/2.";
        WebSocket "WebSocket" "A connection that was upgraded to a WebSocket, counted when it closes.";
    }
}

label! {
    /// Who has to change something for a call to succeed, as in the table of codes.
    CallBlame {
        None "none" "The call succeeded.";
        Caller "caller" "The caller: its request, its credential or the rate of its calls.";
        Agent "agent" "The agent.";
        Gateway "gateway" "The gateway, or what it depends on.";
        Aborted "aborted" "Nobody is known: the caller left, or the call was cancelled.";
    }
}

impl CallBlame {
    /// Returns the label of a blame.
    pub(super) const fn of(blame: Blame) -> Self {
        match blame {
            Blame::Caller => Self::Caller,
            Blame::Agent => Self::Agent,
            Blame::Gateway => Self::Gateway,
        }
    }
}

label! {
    /// The class of the HTTP status of a call.
    StatusClass {
        Success "2xx" "200 to 299.";
        ClientError "4xx" "400 to 499.";
        ServerError "5xx" "500 to 599.";
        Other "other" "Any other status, or none.";
    }
}

impl StatusClass {
    /// Returns the class of a status; 0 is none.
    pub(super) const fn of(status: u16) -> Self {
        match status / 100 {
            2 => Self::Success,
            4 => Self::ClientError,
            5 => Self::ServerError,
            _ => Self::Other,
        }
    }
}

label! {
    /// What became of an entry of the audit log.
    AuditEntryResult {
        Written "written" "The entry is on disk.";
        Omitted "omitted" "A refused change of a publisher was not recorded, because there were more than ten in a second.";
        Lost "lost" "The entry was dropped: the file cannot be written, and a thousand entries wait already.";
    }
}

label! {
    /// What became of a span.
    SpanResult {
        Exported "exported" "The receiver has taken the span.";
        DroppedQueue "dropped_queue" "The span was dropped, because the queue was full.";
        DroppedExport "dropped_export" "The span was dropped, because the receiver did not take it.";
    }
}

label! {
    /// The state of an agent's document.
    AgentDocumentState {
        Served "served" "The agent is served.";
        Inactive "inactive" "The agent is listed but not served.";
        Deprecated "deprecated" "The agent is served but deprecated.";
        Rejected "rejected" "The document was rejected.";
        Unsupported "unsupported" "The document describes something that the gateway does not call, such as an MCP server without a rule for its API.";
    }
}

label! {
    /// The limit that refused a call.
    LimitKind {
        Address "address" "The rate limit of a client address, before authentication.";
        Caller "caller" "The rate limit of a caller.";
        CallerAgent "caller-agent" "The rate limit of a caller at one agent.";
        Search "search" "The rate limit of a caller's searches.";
        Agent "agent" "The rate limit of an agent, as configured or as its document declares.";
        DailyQuota "day" "The daily quota of a caller.";
        MonthlyQuota "month" "The monthly quota of a caller.";
        Concurrency "concurrency" "The configured concurrency limit of an agent.";
        SharedConcurrency "shared-concurrency" "The concurrency limit of an agent that gateways share.";
        AdaptiveConcurrency "adaptive" "The adaptive concurrency limit of an agent.";
        ConcurrencyShare "share" "The share of one caller of an agent's concurrency.";
        CallerConcurrency "caller-concurrency" "The concurrent calls of a caller.";
        BufferedBodies "bodies" "The memory for callers' bodies, in all or of one caller.";
        BufferedAnswers "answers" "The memory for answers that callers have not read, in all or of one caller.";
        AnswerWork "answer-work" "The documents and lists that wait to be made for a caller.";
        WebSockets "websockets" "The open WebSockets, in all or of one caller.";
        Tasks "tasks" "The running and stored tasks, in all or of one caller.";
        IdempotencyKeys "idempotency-keys" "The share of one caller of the idempotency keys.";
        LoadShedding "gateway" "Load shedding: the gateway is overloaded.";
    }
}

label! {
    /// A rule in shadow mode, which is judged and refuses nothing.
    ShadowRule {
        Access "access" "The grants and denials of `access.shadow`.";
        PerCaller "per_caller" "`limits.shadow.per_caller`.";
        PerCallerAgent "per_caller_agent" "`limits.shadow.per_caller_agent`.";
        PerAgent "per_agent" "`limits.shadow.per_agent`.";
        Quota "quota" "`limits.shadow.quota`.";
        MaxPerCaller "max_per_caller" "`limits.shadow.concurrency.max_per_caller`.";
        MaxPerAgent "max_per_agent" "`limits.shadow.concurrency.max_per_agent`.";
        Input "input" "The input schema, with `contract.input: report`.";
        Output "output" "The output schema, with `contract.output: report`.";
    }
}

label! {
    /// The state of an endpoint of an agent.
    EndpointState {
        Up "up" "Calls go there.";
        Down "down" "Its circuit breaker is open.";
    }
}

label! {
    /// The outcome of one try to call an agent at one endpoint.
    AttemptResult {
        Success "success" "The agent responded, with a status below 500.";
        ErrorResponse "error_response" "The agent responded with a status of 500 or above.";
        InvalidResponse "invalid_response" "The agent's response violates HTTP.";
        ConnectFailed "connect_failed" "No connection was opened, or it ended before the request was sent.";
        Reset "reset" "The connection ended after the request was sent and before a response.";
        Timeout "timeout" "The agent did not respond in time.";
        Rejected "rejected" "The circuit breaker of the endpoint refused the call.";
        Aborted "aborted" "The caller left, or its body was refused, before the agent responded.";
    }
}

impl AttemptResult {
    /// Returns the result of a try that failed with this fault.
    pub fn of_fault(fault: &Fault) -> Self {
        match (fault.progress(), fault.code()) {
            (Some(CallProgress::NotSent), _) => Self::ConnectFailed,
            (_, FaultCode::Timeout) => Self::Timeout,
            (Some(CallProgress::PossiblySent), _) => Self::Reset,
            (None, FaultCode::AgentUnavailable | FaultCode::Overloaded) => Self::ConnectFailed,
            (None, FaultCode::AgentError) => Self::InvalidResponse,
            // The caller's body ended early or is too large.
            (None, _) => Self::Aborted,
        }
    }
}

label! {
    /// How a call got its connection to an agent.
    UpstreamConnection {
        Opened "opened" "A connection was opened.";
        Reused "reused" "An open connection was used again.";
        Failed "failed" "No connection could be opened.";
    }
}

label! {
    /// Whose certificate it is.
    CertificateKind {
        Listener "listener" "The certificate of a listener; the name is its configured address.";
        Upstream "upstream" "A client certificate for agents, or an authority of their certificates; the name is that of the file.";
        Issuer "issuer" "An authority of callers' certificates; the name is that of the file.";
    }
}

label! {
    /// The state of an API key.
    ApiKeyState {
        Valid "valid" "The key is accepted.";
        Expired "expired" "The key has expired.";
        Disabled "disabled" "The key is disabled.";
    }
}

label! {
    /// The outcome of fetching the keys of an issuer.
    FetchOutcome {
        Success "success" "The keys were fetched.";
        Failure "failure" "The keys could not be fetched or read.";
    }
}

label! {
    /// The outcome of a poll of a source.
    PollOutcome {
        Success "success" "The poll succeeded and its result is in effect.";
        Failure "failure" "The source could not be polled, or its response is not reliable.";
        Withheld "held" "The loss guard holds the result until it is confirmed, because too many agents would be removed.";
        Rejected "rejected" "The source returned more than its limits allow.";
    }
}

label! {
    /// The state of a stored task.
    StoredTaskState {
        Running "running" "The task runs.";
        Ended "ended" "The task ended, and its result is kept.";
    }
}

label! {
    /// How a task ended.
    TaskEnd {
        Completed "completed" "The agent responded.";
        Failed "failed" "The call failed.";
        Canceled "canceled" "The caller cancelled the task.";
        Lost "lost" "The gateway that ran the task is gone.";
    }
}

label! {
    /// The outcome of one attempt to deliver a callback.
    CallbackResult {
        Delivered "delivered" "The receiver accepted the callback.";
        Retried "retried" "The attempt failed, and another one follows.";
        Abandoned "abandoned" "The attempt failed, and was the last one.";
    }
}

label! {
    /// A store of the gateway.
    StoreKind {
        Registry "registry" "The published documents.";
        Tasks "tasks" "The tasks.";
        Limits "limits" "The shared rates and quotas; one operation is one trip to the server, of any number of buckets.";
        Leases "leases" "The shared slots of agents.";
        Idempotency "idempotency" "The shared idempotency keys.";
        SharedState "state" "Everything else that gateways share: heartbeats, paired pages, withdrawals, events of tasks.";
    }
}

label! {
    /// The state of a connection to a database.
    StoreConnectionState {
        Idle "idle" "The connection waits in the pool.";
        Used "used" "An operation uses the connection.";
    }
}
