//! Shared state in PostgreSQL. What must be atomic is one statement, mostly a call of a function that the schema creates:
//! one trip, by the server's clock. Trips share a few connections, which the heartbeat opens.

mod connection_set;
mod postgres_connection;
mod postgres_engine;
mod postgres_idempotency;
mod postgres_leases;
mod postgres_logs;
mod postgres_values;
mod state_schema;

pub(super) use postgres_engine::PostgresEngine;
