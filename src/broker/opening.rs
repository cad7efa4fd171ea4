//! How a conversation begins: the connection, the greeting, and the older version where the newer is not known.
//! It tries each version once.

use super::{
    Address,
    line::{Refused, Spoken, v4, v5},
    talk::{self, Speaker, Words},
};
use crate::{
    net::{self, AddressPolicy, Authorities, Wire},
    unit::Secret,
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

/// What the broker publishes when a conversation ends without a good-bye; retained, QoS 1.
#[derive(Clone, Debug)]
pub struct Will {
    /// The topic.
    pub topic: String,
    /// The message.
    pub payload: Bytes,
}

/// What a conversation is opened with.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The broker.
    pub address: Address,
    /// The user name, and the password that goes with it.
    pub user: Option<(Secret, Option<Secret>)>,
    /// Whom to believe; needed where the address is secure.
    pub authorities: Option<Authorities>,
    /// The name that the broker's certificate must hold, where it is not the host's.
    pub name: Option<String>,
    /// Which addresses may be reached; all of them where the operator named the broker.
    pub policy: Option<Arc<AddressPolicy>>,
    /// After so long without a word the broker is asked whether it is still there; whole seconds.
    pub keep_alive: Duration,
    /// How long each step of connecting may take; the broker's acknowledgement of what is said may take so long too,
    /// and 10 s at least. After that the conversation is given up.
    pub patience: Duration,
    /// The last will; none by default.
    pub will: Option<Will>,
    /// The client identifier, where whoever comes again is to end its own conversation before: at most 23 letters and
    /// digits that nobody else could guess. By default one that is used once.
    pub id: Option<String>,
}

impl Opening {
    /// Nobody in particular, at `address`, asked for a sign of life after 30 s.
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

/// Begins a conversation: a clean start, under a client identifier of its own that nobody could guess and take over.
///
/// # Errors
/// The broker cannot be reached in time, is not who it should be, or does not let this user in. It may be told to an
/// operator, not to a caller.
pub async fn open(opening: &Opening) -> Result<(Speaker, Words), String> {
    let spoken = match attempt(opening, v5::open(wire(opening).await?, opening)).await {
        Ok(spoken) => spoken,
        Err(Refused::Other(why)) => return Err(why),
        Err(Refused::Version(newer)) => {
            tracing::debug!(broker = %opening.address.base(), why = newer, "MQTT 3.1.1 is tried instead of 5");
            let older = attempt(opening, v4::open(wire(opening).await?, opening)).await;
            older.map_err(|(Refused::Version(why) | Refused::Other(why))| why)?
        }
    };
    Ok(talk::begin(spoken, opening.patience))
}

async fn wire(opening: &Opening) -> Result<Box<dyn Wire>, String> {
    let Address { secure, host, port } = &opening.address;
    if *secure && opening.authorities.is_none() {
        return Err("there is nobody to believe (certificate authorities are required)".to_owned());
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

async fn attempt(opening: &Opening, open: impl Future<Output = Result<Spoken, Refused>>) -> Result<Spoken, Refused> {
    let opened = tokio::time::timeout(opening.patience, open).await;
    opened.unwrap_or_else(|_| Err(Refused::Version(super::SILENT.to_owned())))
}
