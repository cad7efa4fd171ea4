//! Task envelopes, replies and their delivery, with hostile bytes; `tests/it/external/mqtt_agents.rs` covers real brokers.

mod pending_tasks;
mod reply_messages;
mod task_envelopes;
