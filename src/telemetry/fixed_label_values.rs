//! Metric labels with a fixed set of values: one enum per label, so that counting is an array index.

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
        HandshakeFailed "handshake_failed" "The TLS handshake failed or timed out.";
    }
}

label! {
    /// The state of an agent's document.
    AgentDocumentState {
        Served "served" "The agent is served.";
        Inactive "inactive" "The agent is listed but not served.";
        Deprecated "deprecated" "The agent is served but deprecated.";
        Rejected "rejected" "The document was rejected.";
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
        AdaptiveConcurrency "adaptive" "The adaptive concurrency limit of an agent.";
        LoadShedding "gateway" "Load shedding: the gateway is overloaded.";
    }
}
