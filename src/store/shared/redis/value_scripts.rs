//! The scripts for small values.

use super::redis_script::RedisScript;

/// The scripts for small values.
#[derive(Debug)]
pub(super) struct ValueScripts {
    pub(super) put: RedisScript,
    pub(super) get: RedisScript,
    pub(super) redeem: RedisScript,
    pub(super) changed: RedisScript,
}

impl ValueScripts {
    pub(super) fn new() -> Self {
        Self {
            put: RedisScript::new(include_str!("put_values.lua")),
            get: RedisScript::new(include_str!("get_value.lua")),
            redeem: RedisScript::new(include_str!("redeem_value.lua")),
            changed: RedisScript::new(include_str!("changed_values.lua")),
        }
    }
}
