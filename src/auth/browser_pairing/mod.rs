//! Browser pairing (R88): pairing codes, paired pages, and authentication by page key.

mod browser_pairings;
mod page_key_authenticator;

pub use browser_pairings::{BrowserPairingAccess, BrowserPairings};
pub(super) use page_key_authenticator::PageKeyAuthenticator;
