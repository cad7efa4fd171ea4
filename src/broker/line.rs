//! One conversation with a broker in one version of MQTT, seen the same from both: MQTT 5 and 3.1.1 (R104) are two
//! crates with the same words. It answers what the protocol wants answered; it does not connect again.

use super::{Opening, clip};
use crate::{net::Wire, unit::json};
use bytes::Bytes;
use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

/// Why a conversation did not begin.
#[derive(Debug)]
pub(super) enum Refused {
    /// The broker may not know this version.
    Version(String),
    /// It does, and will not talk.
    Other(String),
}

/// What somebody published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The topic as it came: not canonical, perhaps not even UTF-8.
    pub topic: Bytes,
    /// The message; one longer than [`super::LARGEST`] may be cut.
    pub payload: Bytes,
    /// It was there before it was asked for.
    pub retained: bool,
    /// With which quality of service it came, 0 to 2.
    pub qos: u8,
}

/// What a broker has done with what was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It has it, and passes it on.
    Taken,
    /// Nobody has asked for that topic, so nobody gets it. Only MQTT 5 tells.
    ByNobody,
}

/// What comes from the broker.
#[async_trait::async_trait]
pub(super) trait Ear: Send {
    /// The next message; `None` after something that only the protocol needs.
    async fn next(&mut self) -> Result<Option<Message>, String>;
}

/// What goes to the broker; each resolves with its acknowledgement, while somebody listens with the [`Ear`].
#[async_trait::async_trait]
pub(super) trait Mouth: Send + Sync {
    /// Publishes with QoS 1 (R105).
    async fn publish(&self, topic: &str, payload: Bytes, retain: bool) -> Result<Heard, String>;

    /// Asks for the messages of `filters`; for each of them, whether they will come.
    async fn subscribe(&self, filters: &[&str]) -> Result<Vec<bool>, String>;

    /// Does not want the messages of `filters` any more.
    async fn unsubscribe(&self, filters: &[&str]) -> Result<(), String>;

    /// Says good-bye, so that the last will is not carried out.
    async fn disconnect(&self) -> Result<(), String>;
}

/// A conversation that has begun.
pub(super) struct Spoken {
    pub(super) ear: Box<dyn Ear>,
    pub(super) mouth: Arc<dyn Mouth>,
    /// Bytes of the longest packet that the broker takes.
    pub(super) takes: usize,
}

/// Characters of a broker's or a library's own words that are repeated.
const REPEATED: usize = 300;
/// What is said and not yet written; whoever says more waits.
const QUEUE: usize = 100;

type Slot = Arc<Mutex<Option<Box<dyn Wire>>>>;

/// Hands out the one connection that there is.
fn take(slot: &Slot) -> io::Result<clip::Clip<Box<dyn Wire>>> {
    let wire = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    wire.map(clip::Clip::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// A client identifier of the 23 characters that every broker takes.
fn identifier() -> String {
    let random = uuid::Uuid::new_v4().simple().to_string();
    random.chars().take(21).fold("gp".to_owned(), |id, next| id + next.encode_utf8(&mut [0; 4]))
}

fn told(why: &dyn std::error::Error) -> String {
    // These errors repeat their causes themselves.
    json::cut(&why.to_string(), REPEATED)
}

/// The conversation in the words of the crate `$mqtt`; the rest is what the versions name differently.
macro_rules! speaks {
    ($name:ident, $mqtt:ident, $version:pat, $will:expr, $bounds:expr, $takes:expr, $heard:expr) => {
        pub(super) mod $name {
            use super::*;
            use $mqtt::{AsyncClient, ConnAck, ConnectReturnCode, ConnectionError, Event, EventLoop, LastWill};
            use $mqtt::{MqttOptions, Outgoing, Packet, PubAck, PublishOptions, PublishResult, QoS};
            use $mqtt::{SubscribeFilterInput, SubscribeReasonCode};

            struct Heeds(EventLoop);

            struct Says(AsyncClient);

            /// Greets the broker on `wire`.
            pub(in super::super) async fn open(wire: Box<dyn Wire>, opening: &Opening) -> Result<Spoken, Refused> {
                let other = |why: &dyn std::error::Error| Refused::Other(told(why));
                let client = AsyncClient::builder(options(wire, opening)).capacity(QUEUE);
                let (client, mut events) = client.try_build().map_err(|why| other(&why))?;
                let greeting = loop {
                    match events.poll().await {
                        Ok(Event::Incoming(Packet::ConnAck(greeting))) => break greeting,
                        Ok(_) => {}
                        Err(why) => return Err(refused(&why)),
                    }
                };
                let takes: fn(&ConnAck) -> usize = $takes;
                Ok(Spoken { ear: Box::new(Heeds(events)), mouth: Arc::new(Says(client)), takes: takes(&greeting) })
            }

            fn options(wire: Box<dyn Wire>, opening: &Opening) -> MqttOptions {
                let mut options = MqttOptions::new(
                    opening.id.clone().unwrap_or_else(identifier),
                    (opening.address.host.clone(), opening.address.port),
                );
                let slot: Slot = Arc::new(Mutex::new(Some(wire)));
                options.set_socket_connector(move |_, _| std::future::ready(take(&slot)));
                options.set_keep_alive(u16::try_from(opening.keep_alive.as_secs()).unwrap_or(u16::MAX));
                match &opening.user {
                    Some((name, Some(password))) => {
                        options.set_credentials(name.expose(), password.expose().as_bytes().to_vec());
                    }
                    Some((name, None)) => drop(options.set_username(name.expose())),
                    None => {}
                }
                if let Some(will) = &opening.will {
                    let made: fn(&str, &[u8]) -> LastWill = $will;
                    options.set_last_will(made(&will.topic, &will.payload));
                }
                let bounds: fn(&mut MqttOptions) = $bounds;
                bounds(&mut options);
                options
            }

            fn refused(why: &ConnectionError) -> Refused {
                match why {
                    ConnectionError::ConnectionRefused($version) => Refused::Version(told(why)),
                    ConnectionError::ConnectionRefused(
                        ConnectReturnCode::BadUserNamePassword | ConnectReturnCode::NotAuthorized,
                    ) => Refused::Other("the broker refuses the user name or the password".to_owned()),
                    ConnectionError::ConnectionRefused(_) => Refused::Other(told(why)),
                    // What does not know a version may say so in another's words, or by hanging up.
                    _ => Refused::Version(told(why)),
                }
            }

            #[async_trait::async_trait]
            impl Ear for Heeds {
                async fn next(&mut self) -> Result<Option<Message>, String> {
                    match self.0.poll().await {
                        Ok(Event::Incoming(Packet::Publish(message))) => Ok(Some(Message {
                            topic: message.topic,
                            payload: message.payload,
                            retained: message.retain,
                            qos: message.qos as u8,
                        })),
                        // It is written by the time that it is told.
                        Ok(Event::Outgoing(Outgoing::Disconnect)) => Err("the gateway has said good-bye".to_owned()),
                        Ok(_) => Ok(None),
                        Err(why) => Err(told(&why)),
                    }
                }
            }

            #[async_trait::async_trait]
            impl Mouth for Says {
                async fn publish(&self, topic: &str, payload: Bytes, retain: bool) -> Result<Heard, String> {
                    let options = PublishOptions::new(QoS::AtLeastOnce).retain(retain);
                    let said = self.0.publish_tracked(topic, payload, options).await.map_err(|why| told(&why))?;
                    let heard: fn(&PubAck) -> Result<Heard, String> = $heard;
                    match said.wait_async().await.map_err(|why| told(&why))? {
                        PublishResult::Qos1(answer) => heard(&answer),
                        other => Err(format!("the broker acknowledges in another way than asked ({other:?})")),
                    }
                }

                async fn subscribe(&self, filters: &[&str]) -> Result<Vec<bool>, String> {
                    let filters = filters.iter().map(|filter| SubscribeFilterInput::new(*filter, QoS::AtLeastOnce));
                    let said = self.0.subscribe_many_tracked(filters).await.map_err(|why| told(&why))?;
                    let answer = said.wait_async().await.map_err(|why| told(&why))?;
                    let granted = |code: &_| matches!(code, SubscribeReasonCode::Success(_));
                    Ok(answer.return_codes.iter().map(granted).collect())
                }

                async fn unsubscribe(&self, filters: &[&str]) -> Result<(), String> {
                    let filters = filters.iter().copied();
                    let said = self.0.unsubscribe_many_tracked(filters).await.map_err(|why| told(&why))?;
                    said.wait_async().await.map(drop).map_err(|why| told(&why))
                }

                async fn disconnect(&self) -> Result<(), String> {
                    self.0.disconnect().await.map_err(|why| told(&why))
                }
            }
        }
    };
}

speaks!(
    v5,
    rumqttc_v5,
    ConnectReturnCode::UnsupportedProtocolVersion | ConnectReturnCode::RefusedProtocolVersion,
    |topic, payload| LastWill::new(topic, payload, QoS::AtLeastOnce, true, None),
    |options| {
        options.set_clean_start(true);
        // The broker keeps longer messages to itself.
        options.set_max_packet_size(Some((clip::LONGEST + clip::HEADER) as u32));
    },
    |greeting| {
        let most = greeting.properties.as_ref().and_then(|properties| properties.max_packet_size);
        most.map_or(usize::MAX, |most| most as usize)
    },
    |answer| match answer.reason {
        rumqttc_v5::PubAckReason::Success => Ok(Heard::Taken),
        rumqttc_v5::PubAckReason::NoMatchingSubscribers => Ok(Heard::ByNobody),
        why => Err(format!("the broker refuses the message ({why:?})")),
    }
);

speaks!(
    v4,
    rumqttc_v4,
    ConnectReturnCode::RefusedProtocolVersion,
    |topic, payload| LastWill::new(topic, payload, QoS::AtLeastOnce, true),
    |options| {
        options.set_clean_session(true);
        options.set_max_packet_size(clip::LONGEST + clip::HEADER, clip::LONGEST + clip::HEADER);
    },
    |_| usize::MAX,
    |_| Ok(Heard::Taken)
);
