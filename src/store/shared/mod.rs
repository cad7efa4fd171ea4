//! State that gateways share beyond documents and tasks: tokens of rates, counts of quotas, idempotency keys, leases of
//! concurrency, small values and logs of events. It is in a Redis server or a PostgreSQL database (the trait `StateEngine`).
//! [`SharedState`] adds what both need: a deadline for each trip, a circuit breaker for each kind of trip, the heartbeat by which gateways count
//! each other, and metrics. Which decision a caller gets while the server cannot be reached is the business of the modules
//! that ask.

mod availability_log;
mod background_reader;
mod config;
#[cfg(test)]
mod fake_engine;
#[cfg(test)]
mod fake_logs;
#[cfg(test)]
mod fake_tokens;
mod gateway_count;
mod idempotency_engine;
mod idempotency_records;
mod lease_engine;
mod lease_exchange;
mod log_engine;
mod postgres;
mod problem_log;
mod redis;
mod redis_url;
mod shared_state;
mod state_connection;
mod state_engine;
mod state_error;
mod state_health;
mod state_inspection;
mod token_exchange;
mod trip_breaker;
mod trip_kind;
mod value_engine;
mod value_kind;

pub use config::{RedisConfig, SentinelConfig, StateConfig};
#[cfg(test)]
pub use fake_engine::{FakeBehavior, FakeServer};
#[cfg(test)]
pub use fake_tokens::FakeTokens;
pub use idempotency_engine::{
    ClaimRelease, ClaimReply, ClaimRequest, ExtensionReply, KeyBounds, KeyClaim, KeyReply, KeyShard, OutcomeReply,
    OutcomeRequest, ShardReply, UpkeepReply, UpkeepRequest,
};
pub use idempotency_records::IdempotencyRecords;
pub use lease_exchange::{LeaseBatch, LeaseEntry, LeaseReply};
pub use log_engine::{LogAppend, LogPage};
pub use shared_state::SharedState;
pub use state_error::StateError;
pub use state_inspection::inspect_state;
pub use token_exchange::{TokenBatch, TokenEntry, TokenLimit, TokenReply};
pub use trip_kind::TripKind;
pub use value_engine::{
    MAX_VALUES_PER_TRIP, NewValue, Redemption, RedemptionAttempt, StoredValue, ValueChanges, ValueKey,
};
pub use value_kind::ValueKind;
