//! Browser pairing (R88): pairing codes, paired pages, and authentication by page key.

mod browser_pairings;
mod local_pairings;
mod page_key_authenticator;
mod pairing_code;
mod pairing_store;
mod shared_pairings;

#[cfg(test)]
mod tests;

pub use browser_pairings::{BrowserPairingAccess, BrowserPairings};
pub(super) use page_key_authenticator::PageKeyAuthenticator;
pub use pairing_code::NewPairingCode;
