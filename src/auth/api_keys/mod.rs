//! API keys: the authenticator, the table of stored keys, key files, and the generation of new keys.

mod api_key_authenticator;
mod api_key_file;
mod api_key_table;
mod key_generation;

pub(super) use api_key_authenticator::ApiKeyAuthenticator;
pub use key_generation::{NewApiKey, append_api_key, generate_api_key};
