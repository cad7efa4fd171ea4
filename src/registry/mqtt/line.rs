//! One conversation with a broker in one version of MQTT, seen the same from both: MQTT 5 and 3.1.1 (R104) are two
//! crates with the same words. It asks for statuses and answers what the protocol wants answered; it does not connect
//! again.

use super::{clip, status::FILTERS};
use crate::{
    net::Wire,
    unit::{Secret, json},
};
use bytes::Bytes;
use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

/// What a conversation is opened with.
#[derive(Debug)]
pub(super) struct Opening {
    /// The client identifier: nobody who could guess it may take the conversation over.
    pub(super) id: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// The user name, and the password that goes with it.
    pub(super) user: Option<(Secret, Option<Secret>)>,
    /// In seconds.
    pub(super) keep_alive: u16,
}

/// Why a conversation did not begin.
#[derive(Debug)]
pub(super) enum Refused {
    /// The broker may not know this version.
    Version(String),
    /// It does, and will not talk.
    Other(String),
}

/// What a broker says.
#[derive(Debug)]
pub(super) enum Word {
    /// The statuses that were asked for will come (SUBACK).
    Granted,
    /// A message.
    Published {
        topic: Bytes,
        payload: Bytes,
        /// It was there before it was asked for.
        retained: bool,
    },
    /// Something that only the protocol needs.
    Other,
}

/// A conversation that has begun.
#[async_trait::async_trait]
pub(super) trait Line: Send {
    /// The broker's next word.
    async fn next(&mut self) -> Result<Word, String>;
}

/// Characters of a broker's or a library's own words that are repeated.
const REPEATED: usize = 300;

type Slot = Arc<Mutex<Option<Box<dyn Wire>>>>;

/// Hands out the one connection that there is.
fn take(slot: &Slot) -> io::Result<clip::Clip<Box<dyn Wire>>> {
    let wire = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    wire.map(clip::Clip::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
}

fn told(why: &dyn std::error::Error) -> String {
    // These errors repeat their causes themselves.
    json::cut(&why.to_string(), REPEATED)
}

/// The conversation in the words of the crate `$mqtt`; `$bounds` sets what the versions name differently.
macro_rules! speaks {
    ($name:ident, $mqtt:ident, $version:pat, $credentials:pat, $bounds:expr, $filter:expr) => {
        pub(super) mod $name {
            use super::*;
            use $mqtt::{AsyncClient, ConnectReturnCode, ConnectionError, Event, EventLoop, MqttOptions, Packet};
            use $mqtt::{QoS, SubscribeFilter, SubscribeReasonCode};

            struct Spoken {
                events: EventLoop,
                /// The conversation ends with its last client.
                _client: AsyncClient,
            }

            /// Greets the broker on `wire` and asks for statuses.
            pub(in super::super) async fn open(
                wire: Box<dyn Wire>,
                opening: &Opening,
            ) -> Result<Box<dyn Line>, Refused> {
                let mut options = MqttOptions::new(opening.id.clone(), (opening.host.clone(), opening.port));
                let slot: Slot = Arc::new(Mutex::new(Some(wire)));
                options.set_socket_connector(move |_, _| std::future::ready(take(&slot)));
                options.set_keep_alive(opening.keep_alive);
                match &opening.user {
                    Some((name, Some(password))) => {
                        options.set_credentials(name.expose(), password.expose().as_bytes().to_vec());
                    }
                    Some((name, None)) => drop(options.set_username(name.expose())),
                    None => {}
                }
                let bounds: fn(&mut MqttOptions) = $bounds;
                bounds(&mut options);
                let (client, mut events) =
                    AsyncClient::builder(options).try_build().map_err(|why| Refused::Other(told(&why)))?;
                loop {
                    match events.poll().await {
                        Ok(Event::Incoming(Packet::ConnAck(_))) => break,
                        Ok(_) => {}
                        Err(why) => return Err(refused(&why)),
                    }
                }
                let filter: fn(&str, QoS) -> SubscribeFilter = $filter;
                let filters = FILTERS.map(|path| filter(path, QoS::AtLeastOnce));
                client.try_subscribe_many(filters).map_err(|why| Refused::Other(told(&why)))?;
                Ok(Box::new(Spoken { events, _client: client }))
            }

            fn refused(why: &ConnectionError) -> Refused {
                match why {
                    ConnectionError::ConnectionRefused($version) => Refused::Version(told(why)),
                    ConnectionError::ConnectionRefused($credentials) => {
                        Refused::Other("the broker refuses the user name or the password".to_owned())
                    }
                    ConnectionError::ConnectionRefused(_) => Refused::Other(told(why)),
                    // What does not know a version may say so in another's words, or by hanging up.
                    _ => Refused::Version(told(why)),
                }
            }

            #[async_trait::async_trait]
            impl Line for Spoken {
                async fn next(&mut self) -> Result<Word, String> {
                    match self.events.poll().await {
                        Ok(Event::Incoming(Packet::Publish(message))) => Ok(Word::Published {
                            topic: message.topic,
                            payload: message.payload,
                            retained: message.retain,
                        }),
                        Ok(Event::Incoming(Packet::SubAck(answer))) => {
                            let granted = |code: &_| matches!(code, SubscribeReasonCode::Success(_));
                            match answer.return_codes.iter().any(granted) {
                                true => Ok(Word::Granted),
                                false => {
                                    Err("the broker does not let the gateway read /control/agents/+/status".into())
                                }
                            }
                        }
                        Ok(_) => Ok(Word::Other),
                        Err(why) => Err(told(&why)),
                    }
                }
            }
        }
    };
}

speaks!(
    v5,
    rumqttc_v5,
    ConnectReturnCode::UnsupportedProtocolVersion | ConnectReturnCode::RefusedProtocolVersion,
    ConnectReturnCode::BadUserNamePassword | ConnectReturnCode::NotAuthorized,
    |options| {
        options.set_clean_start(true);
        // The broker keeps longer messages to itself.
        options.set_max_packet_size(Some((clip::LONGEST + clip::HEADER) as u32));
    },
    |path, qos| SubscribeFilter::new(path, qos)
);

speaks!(
    v4,
    rumqttc_v4,
    ConnectReturnCode::RefusedProtocolVersion,
    ConnectReturnCode::BadUserNamePassword | ConnectReturnCode::NotAuthorized,
    |options| {
        options.set_clean_session(true);
        options.set_max_packet_size(clip::LONGEST + clip::HEADER, 64 << 10);
    },
    |path, qos| SubscribeFilter::new(path.to_owned(), qos)
);
