//! Changes of API keys, for commands and for the console: keys are created, rotated and disabled in the configured key
//! files, and every change is recorded in the audit log. Secrets are returned once, and stored nowhere.

mod key_change_error;
mod key_lifetime;
mod key_recorder;
mod managed_keys;

pub use key_change_error::KeyChangeError;
pub use key_lifetime::KeyLifetime;
pub use key_recorder::KeyRecorder;
pub use managed_keys::{DisabledKeys, GeneratedKey, KeySelection, ManagedKeys, NewKey};

#[cfg(test)]
mod tests;
