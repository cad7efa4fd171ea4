//! Signing: JSON Web Signatures (RFC 7515) and JSON Web Keys (RFC 7517). The module verifies signatures over agent
//! cards (over RFC 8785's canonical form) and over claims (JWT), and makes the gateway's own, with keys that are
//! published. `auth` verifies callers' tokens with the same parser and the same keys.
//! It never fetches a key that a document names (`jku`): the author of a document must not choose its verifier. A
//! signature without `exp` has no time: an older card of a publisher stays valid until its key is no longer trusted.

mod canonical_forms;
mod card_fields;
mod jws;
mod public_key;
mod signature_algorithm;
mod signing_key;
mod trusted_keys;
mod verification_key;

pub use jws::{CompactJws, JwsError, JwsHeader};
pub use signature_algorithm::SignatureAlgorithm;
pub use signing_key::SigningKey;
pub use trusted_keys::{ClaimsError, DocumentSignatureError, SignatureFinding, TrustedKeys, VerifiedPart};
pub use verification_key::VerificationKey;

#[cfg(test)]
mod tests;
