//! The scripts for logs.

use super::redis_script::RedisScript;

/// The scripts for logs.
#[derive(Debug)]
pub(super) struct LogScripts {
    pub(super) append: RedisScript,
    pub(super) read: RedisScript,
}

impl LogScripts {
    pub(super) fn new() -> Self {
        Self {
            append: RedisScript::new(include_str!("append_to_log.lua")),
            read: RedisScript::new(include_str!("read_log.lua")),
        }
    }
}
