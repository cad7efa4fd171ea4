//! Shared state in Redis or Valkey. What must be atomic is a Lua script: one script, one trip, by the server's clock. A
//! cluster has several shards, and every key of a script is in one of them.

mod idempotency_scripts;
mod log_scripts;
mod outcome_reads;
mod redis_connection;
mod redis_engine;
mod redis_idempotency;
mod redis_leases;
mod redis_logs;
mod redis_script;
mod redis_settings;
mod redis_values;
mod sentinel_primary;
mod token_script;
mod value_scripts;

pub(super) use redis_engine::RedisEngine;
