//! Connecting to an MQTT broker: TCP or TLS, then CONNECT in MQTT 5, then in MQTT 3.1.1 if the broker does not know
//! MQTT 5. Each version is tried once.

use super::{
    BrokerAddress,
    connect_options::ConnectOptions,
    mqtt_session::{self, MqttReceiver, MqttSender},
    protocol_versions::{ConnectError, MqttConnection, v4, v5},
};
use crate::net::{self, ByteStream};

/// Connects to a broker under a client identifier that others cannot guess and take over; with a clean session, unless
/// the options keep one.
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
    Ok(mqtt_session::start_session(connection, options))
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
        acknowledges_at_once: true,
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
