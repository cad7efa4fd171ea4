//! The kinds of small values in the shared state, each with its bound.

/// A kind of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// The code with which a web page is paired: one for all gateways.
    PairingCode,
    /// The keys of paired web pages.
    PairedPage,
    /// Revoked API keys and tokens.
    Revocation,
}

impl ValueKind {
    /// Returns the name in the store.
    pub(in crate::store) const fn name(self) -> &'static str {
        match self {
            Self::PairingCode => "pairing-code",
            Self::PairedPage => "paired-page",
            Self::Revocation => "revocation",
        }
    }

    /// Returns a number that is the same in every gateway.
    pub(in crate::store) const fn number(self) -> u8 {
        match self {
            Self::PairingCode => 1,
            Self::PairedPage => 2,
            Self::Revocation => 3,
        }
    }

    /// Returns the maximum number of values.
    pub const fn max_values(self) -> u32 {
        match self {
            Self::PairingCode => 1,
            Self::PairedPage => 1_000,
            Self::Revocation => 100_000,
        }
    }

    /// Returns whether a new value takes the place of the one that ends first where there are `max_values`. Otherwise the
    /// new one is refused: a revocation that was forgotten would make a key valid again.
    pub const fn replaces_oldest(self) -> bool {
        !matches!(self, Self::Revocation)
    }
}
