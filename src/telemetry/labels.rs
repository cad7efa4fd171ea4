//! Labels whose values are known beforehand: an enum each, so that counting is an index.

/// An enum whose variants are the values of one label.
macro_rules! label {
    ($(#[$about:meta])* $type:ident { $($value:ident $name:literal $doc:literal;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type { $(#[doc = $doc] $value,)* }

        impl $type {
            /// Every value, in the order of their places.
            pub const ALL: &'static [Self] = &[$(Self::$value),*];

            /// The label value.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$value => $name,)* }
            }

            /// Every label value, in the same order.
            pub(super) const NAMES: &'static [&'static str] = &[$($name),*];
        }
    };
}
pub(super) use label;

label! {
    /// What became of a connection.
    Connection {
        Accepted "accepted" "It was accepted.";
        Refused "refused" "It was closed at once: too many were open.";
        HandshakeFailed "handshake_failed" "Its TLS handshake failed or was not finished in time.";
    }
}

label! {
    /// What became of an agent's document.
    AgentState {
        Served "served" "It is served.";
        Inactive "inactive" "It is known and not served.";
        Deprecated "deprecated" "It is served, and will not be for ever.";
        Refused "refused" "Its document was refused.";
    }
}

label! {
    /// Which bound refused a call.
    Limit {
        Address "address" "The rate of a peer address, before authentication.";
        Caller "caller" "The rate of a caller.";
        CallerAgent "caller-agent" "The rate of a caller at one agent.";
        Search "search" "The rate of a caller's searches.";
        Agent "agent" "The rate of an agent, as configured or as its document asks.";
        Day "day" "A caller's quota of the day.";
        Month "month" "A caller's quota of the month.";
        Concurrency "concurrency" "The calls that an agent may have at once.";
        Learnt "learnt" "The calls that an agent answers at once in good time, as far as is known.";
        Gateway "gateway" "What the gateway itself can do.";
    }
}
