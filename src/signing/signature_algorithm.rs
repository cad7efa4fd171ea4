//! Signature algorithms of JSON Web Signatures.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Signature algorithm (RFC 7518, RFC 8037, RFC 9864). Symmetric algorithms and `none` are never accepted; ES512 is not
/// supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum SignatureAlgorithm {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    EdDSA,
    Ed25519,
}

impl SignatureAlgorithm {
    /// Every algorithm.
    pub const ALL: [Self; 10] = [
        Self::RS256,
        Self::RS384,
        Self::RS512,
        Self::PS256,
        Self::PS384,
        Self::PS512,
        Self::ES256,
        Self::ES384,
        Self::EdDSA,
        Self::Ed25519,
    ];

    /// Returns the algorithm of this name (`alg`), if it is supported.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.as_str() == name)
    }

    /// Returns the name (`alg`).
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RS256 => "RS256",
            Self::RS384 => "RS384",
            Self::RS512 => "RS512",
            Self::PS256 => "PS256",
            Self::PS384 => "PS384",
            Self::PS512 => "PS512",
            Self::ES256 => "ES256",
            Self::ES384 => "ES384",
            Self::EdDSA => "EdDSA",
            Self::Ed25519 => "Ed25519",
        }
    }

    /// Returns whether both names mean the same signatures. RFC 9864 adds a second name for EdDSA over Ed25519, the only
    /// EdDSA that is supported.
    pub(super) fn is_synonym_of(self, other: Self) -> bool {
        let synonyms = [Self::EdDSA, Self::Ed25519];
        self == other || (synonyms.contains(&self) && synonyms.contains(&other))
    }
}
