//! Revocation of API keys and tokens before they expire. A call looks its credential up in a set of this process
//! ([`RevocationList`]), without waiting. Where gateways share a state, each of them publishes its revocations there and
//! reads those of the others several times a second, all of them at the start. Only hashes are stored. While the state is
//! unavailable, a gateway keeps the revocations that it knows.

mod new_revocation;
mod revocation_key;
mod revocation_list;
mod revocation_set;
mod revocation_store;
mod revocation_sync;
mod token_identity;
mod token_selection;

#[cfg(test)]
mod tests;

pub use new_revocation::{NewRevocation, RevokedKey};
pub(super) use revocation_key::RevocationKey;
pub use revocation_list::{Publication, RevocationList, TooManyRevocations, publish_revocations};
pub(super) use token_identity::{TokenIdentity, TokenNames};
pub use token_selection::{RevokedTokens, TokenRevocationRequest};
