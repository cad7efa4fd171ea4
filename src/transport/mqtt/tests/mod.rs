//! Task envelopes, replies and their delivery, with hostile bytes; `tests/it/mqtt.rs` covers real brokers.

mod answers;
mod desk;
mod envelopes;
