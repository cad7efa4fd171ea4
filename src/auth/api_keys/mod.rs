//! API keys: the authenticator, the table of stored keys, key files, and the commands that create and change keys.

mod api_key_authenticator;
mod api_key_file;
mod api_key_table;
mod key_file_edits;
mod key_file_error;
mod key_generation;
mod locked_key_file;

pub(super) use api_key_authenticator::ApiKeyAuthenticator;
pub use key_file_edits::{
    ApiKeyListing, ApiKeyState, InvalidKeyLine, KeyRotation, RotatedKey, append_api_key, disable_api_keys,
    invalid_key_lines, list_api_keys, restore_key_file, retract_api_key, revoke_disabled_key, rotate_api_key,
    visit_api_keys,
};
pub use key_file_error::KeyFileError;
pub use key_generation::{NewApiKey, generate_api_key};
