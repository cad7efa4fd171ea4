//! Envelopes, answers and the desk, with hostile bytes; real brokers are spoken to in `tests/it/mqtt.rs`.

mod answers;
mod desk;
mod envelopes;
