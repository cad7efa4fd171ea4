//! Options for connecting to an MQTT broker.

use super::BrokerAddress;
use crate::{
    net::{AddressPolicy, TlsClientSettings},
    telemetry::BrokerMetrics,
    values::Secret,
};
use bytes::Bytes;
use std::{num::NonZeroU16, sync::Arc, time::Duration};

/// Last will: the message that the broker publishes when the connection ends without DISCONNECT; retained, QoS 1.
#[derive(Clone, Debug)]
pub struct WillMessage {
    /// Topic of the message.
    pub topic: String,
    /// Payload of the message.
    pub payload: Bytes,
}

/// Options for connecting to a broker.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Address of the broker.
    pub address: BrokerAddress,
    /// User name and optional password.
    pub credentials: Option<(Secret, Option<Secret>)>,
    /// Certificate authorities to trust; required for an address with TLS.
    pub authorities: Option<TlsClientSettings>,
    /// Name that the broker's certificate must be valid for, if it differs from the host.
    pub server_name: Option<String>,
    /// Restricts the addresses to connect to; `None` where the operator configured the broker.
    pub policy: Option<Arc<AddressPolicy>>,
    /// Interval of inactivity after which the client sends a PINGREQ; whole seconds.
    pub keep_alive: Duration,
    /// Timeout of each step of connecting. An acknowledgement by the broker may take as long, and at least 10 s; after
    /// that the connection is closed.
    pub timeout: Duration,
    /// The last will. Default: none.
    pub will: Option<WillMessage>,
    /// The client identifier: at most 23 letters and digits that others cannot guess. With a fixed identifier, a client
    /// that reconnects ends its own previous connection. Default: random.
    pub client_id: Option<String>,
    /// How long the broker keeps the session after the connection; needs a client identifier. With MQTT 3.1.1, the
    /// broker's own setting decides. The client then acknowledges each received message itself (see
    /// [`MqttSender::acknowledge`](super::MqttSender::acknowledge)). Default: the session ends with the connection.
    pub session_expiry: Option<Duration>,
    /// Maximum number of unacknowledged messages that the broker sends, where the session is kept. MQTT 3.1.1 has no such
    /// bound; the broker's own setting decides. Default: 65535.
    pub receive_maximum: Option<NonZeroU16>,
    /// The metrics of the broker. Default: none.
    pub metrics: Option<Arc<BrokerMetrics>>,
}

impl ConnectOptions {
    /// Options for `address` without credentials and last will, and with a keep-alive of 30 s.
    pub fn new(address: BrokerAddress, timeout: Duration) -> Self {
        Self {
            address,
            credentials: None,
            authorities: None,
            server_name: None,
            policy: None,
            keep_alive: Duration::from_secs(30),
            timeout,
            will: None,
            client_id: None,
            session_expiry: None,
            receive_maximum: None,
            metrics: None,
        }
    }
}
