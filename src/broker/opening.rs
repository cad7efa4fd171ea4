//! Connecting to an MQTT broker: TCP or TLS, then CONNECT in MQTT 5, then in MQTT 3.1.1 if the broker does not know
//! MQTT 5. Each version is tried once.

use super::{
    Address,
    line::{ConnectError, MqttConnection, v4, v5},
    talk::{self, Speaker, Words},
};
use crate::{
    net::{self, AddressPolicy, Authorities, Wire},
    unit::Secret,
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

/// Last will: the message that the broker publishes when the connection ends without DISCONNECT; retained, QoS 1.
#[derive(Clone, Debug)]
pub struct Will {
    /// Topic of the message.
    pub topic: String,
    /// Payload of the message.
    pub payload: Bytes,
}

/// Options for connecting to a broker.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Address of the broker.
    pub address: Address,
    /// User name and optional password.
    pub user: Option<(Secret, Option<Secret>)>,
    /// Certificate authorities to trust; required for an address with TLS.
    pub authorities: Option<Authorities>,
    /// Name that the broker's certificate must be valid for, if it differs from the host.
    pub name: Option<String>,
    /// Restricts the addresses to connect to; `None` where the operator configured the broker.
    pub policy: Option<Arc<AddressPolicy>>,
    /// Interval of inactivity after which the client sends a PINGREQ; whole seconds.
    pub keep_alive: Duration,
    /// Timeout of each step of connecting. An acknowledgement by the broker may take as long, and at least 10 s; after
    /// that the connection is closed.
    pub patience: Duration,
    /// The last will. Default: none.
    pub will: Option<Will>,
    /// The client identifier: at most 23 letters and digits that others cannot guess. A fixed one lets a client that
    /// reconnects end its own previous session. Default: a random one.
    pub id: Option<String>,
}

impl Opening {
    /// Options for `address` without credentials and last will, and with a keep-alive of 30 s.
    pub fn new(address: Address, patience: Duration) -> Self {
        Self {
            address,
            user: None,
            authorities: None,
            name: None,
            policy: None,
            keep_alive: Duration::from_secs(30),
            patience,
            will: None,
            id: None,
        }
    }
}

/// Connects to a broker with a clean session, under a client identifier that others cannot guess and take over.
///
/// # Errors
/// The broker cannot be reached in time, fails TLS verification, or refuses the credentials. The text is for operators,
/// not for callers.
pub async fn open(opening: &Opening) -> Result<(Speaker, Words), String> {
    let connection = match with_timeout(opening, v5::connect(open_stream(opening).await?, opening)).await {
        Ok(connection) => connection,
        Err(ConnectError::Other(why)) => return Err(why),
        Err(ConnectError::UnsupportedVersion(newer)) => {
            tracing::debug!(broker = %opening.address.base(), why = newer, "MQTT 5 failed, trying MQTT 3.1.1");
            let older = with_timeout(opening, v4::connect(open_stream(opening).await?, opening)).await;
            older.map_err(|(ConnectError::UnsupportedVersion(why) | ConnectError::Other(why))| why)?
        }
    };
    Ok(talk::start_session(connection, opening.patience))
}

async fn open_stream(opening: &Opening) -> Result<Box<dyn Wire>, String> {
    let Address { secure, host, port } = &opening.address;
    if *secure && opening.authorities.is_none() {
        return Err("TLS requires certificate authorities, and none are configured".to_owned());
    }
    let peer = net::Peer {
        host,
        port: *port,
        authorities: opening.authorities.as_ref().filter(|_| *secure),
        name: opening.name.as_deref(),
        policy: opening.policy.as_deref(),
    };
    let done = tokio::time::timeout(opening.patience, peer.connect()).await;
    done.unwrap_or_else(|_| Err(super::SILENT.to_owned()))
}

async fn with_timeout(
    opening: &Opening,
    connect: impl Future<Output = Result<MqttConnection, ConnectError>>,
) -> Result<MqttConnection, ConnectError> {
    let opened = tokio::time::timeout(opening.patience, connect).await;
    opened.unwrap_or_else(|_| Err(ConnectError::UnsupportedVersion(super::SILENT.to_owned())))
}
