//! Agents on Matrix: a call is a message in the agent's room, sent by the gateway's account, and the agent's reply to
//! that message is the reply to the call. An account runs one sync loop for all agents that are reached through it.
//! Encrypted rooms are refused, and messages are sent only to rooms that an agent's record names.

mod agent_room;
mod config;
mod error_mapping;
mod homeserver_account;
mod homeserver_api;
mod invocation_event;
mod matrix_accounts;
mod matrix_transport;
mod pending_calls;
mod reply_message;
mod room_timeline;
mod sync;

pub use config::MatrixConfig;
pub(super) use matrix_accounts::MatrixAccounts;

#[cfg(test)]
mod tests;
