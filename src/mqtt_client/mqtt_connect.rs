//! Connecting to an MQTT broker: TCP or TLS, then CONNECT in MQTT 5, then in MQTT 3.1.1 if the broker does not know
//! MQTT 5. Each version is tried once.

use super::{
    BrokerAddress,
    mqtt_session::{self, MqttReceiver, MqttSender},
    protocol_versions::{ConnectError, MqttConnection, v4, v5},
};
use crate::{
    net::{self, AddressPolicy, ByteStream, TlsClientSettings},
    values::Secret,
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

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
    /// that reconnects ends its own previous session. Default: random.
    pub client_id: Option<String>,
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
        }
    }
}

/// Connects to a broker with a clean session, under a client identifier that others cannot guess and take over.
///
/// # Errors
/// The broker cannot be reached in time, fails TLS verification, or refuses the credentials. The text is for operators,
/// not for callers.
pub async fn connect(options: &ConnectOptions) -> Result<(MqttSender, MqttReceiver), String> {
    let connection = match with_timeout(options, v5::connect(open_stream(options).await?, options)).await {
        Ok(connection) => connection,
        Err(ConnectError::Other(reason)) => return Err(reason),
        Err(ConnectError::UnsupportedVersion(reason)) => {
            tracing::debug!(broker = %options.address.base_url(), reason, "MQTT 5 failed, trying MQTT 3.1.1");
            let connection = with_timeout(options, v4::connect(open_stream(options).await?, options)).await;
            connection.map_err(|(ConnectError::UnsupportedVersion(reason) | ConnectError::Other(reason))| reason)?
        }
    };
    Ok(mqtt_session::start_session(connection, options.timeout))
}

async fn open_stream(options: &ConnectOptions) -> Result<Box<dyn ByteStream>, String> {
    let BrokerAddress { tls, host, port } = &options.address;
    if *tls && options.authorities.is_none() {
        return Err("TLS requires certificate authorities, and none are configured".to_owned());
    }
    let target = net::ConnectTarget {
        host,
        port: *port,
        tls: options.authorities.as_ref().filter(|_| *tls),
        server_name: options.server_name.as_deref(),
        policy: options.policy.as_deref(),
    };
    let result = tokio::time::timeout(options.timeout, target.connect()).await;
    result.unwrap_or_else(|_| Err(super::CONNECT_TIMED_OUT.to_owned()))
}

async fn with_timeout(
    options: &ConnectOptions,
    connect: impl Future<Output = Result<MqttConnection, ConnectError>>,
) -> Result<MqttConnection, ConnectError> {
    let result = tokio::time::timeout(options.timeout, connect).await;
    result.unwrap_or_else(|_| Err(ConnectError::UnsupportedVersion(super::CONNECT_TIMED_OUT.to_owned())))
}
