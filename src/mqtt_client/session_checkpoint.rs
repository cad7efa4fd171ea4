//! The client's side of a session that the broker kept (MQTT 5). The library resumes such a session only from a
//! checkpoint. That of this client is always empty: it owes the broker nothing after a connection, because its users
//! publish again what was not acknowledged, and the broker delivers unacknowledged messages again.

use rumqttc_v5::{MqttOptions, PersistedAckMode, PersistedSession, SessionStore, SessionStoreError, SessionStoreKey};
use std::pin::Pin;

type SessionStoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, SessionStoreError>> + Send + 'a>>;

/// A checkpoint without packets in flight.
#[derive(Debug)]
pub(super) struct EmptyCheckpoint {
    client_id: String,
    session_expiry: Option<u32>,
    inflight_limit: Option<u16>,
}

impl EmptyCheckpoint {
    /// Returns the checkpoint for a session with these options, which stay as they are: the library refuses a checkpoint
    /// of another limit of publications in flight.
    pub(super) fn new(options: &MqttOptions) -> Self {
        Self {
            client_id: options.client_id(),
            session_expiry: options.session_expiry_interval(),
            inflight_limit: options.get_outgoing_inflight_upper_limit(),
        }
    }
}

impl SessionStore for EmptyCheckpoint {
    fn load<'a>(&'a self, _: &'a SessionStoreKey) -> SessionStoreFuture<'a, Option<PersistedSession>> {
        let checkpoint = PersistedSession {
            format_version: 1,
            client_id: self.client_id.clone(),
            clean_start: false,
            session_expiry_interval: self.session_expiry,
            outgoing_inflight_upper_limit: self.inflight_limit,
            ack_mode: PersistedAckMode::Manual,
            last_pkid: 0,
            last_puback: 0,
            replay: Vec::new(),
            incoming_qos2: Vec::new(),
        };
        Box::pin(std::future::ready(Ok(Some(checkpoint))))
    }

    fn save<'a>(&'a self, _: &'a SessionStoreKey, _: &'a PersistedSession) -> SessionStoreFuture<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn clear<'a>(&'a self, _: &'a SessionStoreKey) -> SessionStoreFuture<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}
