//! One MQTT connection, in MQTT 5 or 3.1.1 (R104): one interface over two crates with nearly the same API. It sends the
//! packets that the protocol requires (such as PINGREQ and PUBACK), and does not reconnect.

use super::{connect_options::ConnectOptions, packet_limit, session_checkpoint};
use crate::{net::ByteStream, values::json};
use bytes::Bytes;
use parking_lot::Mutex;
use std::{io, num::NonZeroU16, sync::Arc};

/// Why connecting failed.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// The broker may not know this version of MQTT.
    UnsupportedVersion(String),
    /// The broker knows the version and refuses the connection.
    Other(String),
}

/// A received message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncomingMessage {
    /// Topic as received: not canonical, perhaps not UTF-8.
    pub topic: Bytes,
    /// Payload; one longer than [`super::MAX_MESSAGE_BYTES`] may be truncated.
    pub payload: Bytes,
    /// The first user properties (MQTT 5).
    pub user_properties: Vec<(String, String)>,
    /// Whether the message was retained: published before the subscription.
    pub retained: bool,
    /// Whether the broker says that it delivered the message before.
    pub repeated: bool,
    /// Quality of service of the delivery, 0 to 2.
    pub qos: u8,
    /// Identifier of the delivery, which its acknowledgement names; 0 with QoS 0.
    pub packet_id: u16,
}

impl IncomingMessage {
    /// Returns the length of the payload and the texts, in bytes.
    pub fn length(&self) -> usize {
        let properties = self.user_properties.iter().map(|(name, value)| name.len() + value.len());
        self.topic.len() + self.payload.len() + properties.sum::<usize>()
    }
}

/// A message to publish.
#[derive(Clone, Debug)]
pub(super) struct OutgoingPublish<'a> {
    pub(super) topic: &'a str,
    pub(super) payload: Bytes,
    pub(super) retain: bool,
    pub(super) user_properties: Vec<(String, String)>,
}

/// The most user properties of a message that are kept; the size of the packet bounds their texts.
const MAX_USER_PROPERTIES: usize = 16;

/// How the broker acknowledged a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishAck {
    /// The broker accepted the message.
    Accepted,
    /// Accepted, but no client subscribes to the topic. Only MQTT 5 reports that.
    NoSubscribers,
}

/// Receiving half of a connection.
#[async_trait::async_trait]
pub(super) trait PacketReceiver: Send {
    /// Receives the next message; `None` for a packet that only the protocol needs.
    async fn next(&mut self) -> Result<Option<IncomingMessage>, String>;
}

/// Sending half of a connection. Each method resolves with the acknowledgement, provided that the receiver is polled.
#[async_trait::async_trait]
pub(super) trait PacketSender: Send + Sync {
    /// Publishes with QoS 1 (R105).
    /// Only MQTT 5 has user properties.
    async fn publish(&self, message: OutgoingPublish<'_>) -> Result<PublishAck, String>;

    /// Subscribes to `filters`; returns for each whether the broker granted it.
    async fn subscribe(&self, filters: &[&str]) -> Result<Vec<bool>, String>;

    /// Unsubscribes from `filters`.
    async fn unsubscribe(&self, filters: &[&str]) -> Result<(), String>;

    /// Sends the PUBACK of a received message, where the session is kept; the library sends all others.
    async fn acknowledge(&self, packet_id: u16) -> Result<(), String>;

    /// Sends DISCONNECT, so that the broker does not publish the last will.
    async fn disconnect(&self) -> Result<(), String>;
}

/// An established connection.
pub(super) struct MqttConnection {
    pub(super) receiver: Box<dyn PacketReceiver>,
    pub(super) sender: Arc<dyn PacketSender>,
    /// Maximum packet size of the broker, in bytes.
    pub(super) max_packet_size: usize,
    /// Whether it speaks MQTT 5, and not 3.1.1.
    pub(super) is_version_5: bool,
}

/// Maximum number of characters of a broker's or library's error text.
const MAX_ERROR_CHARS: usize = 300;
/// Capacity of the send queue; further packets wait.
const SEND_QUEUE: usize = 100;

/// The most publications that await their acknowledgement (MQTT 5); further ones wait. The library keeps a slot for each,
/// and visits all slots after each read and before each flush.
const MAX_PUBLISHES_IN_FLIGHT: u16 = 256;

type ConnectionSlot = Arc<Mutex<Option<Box<dyn ByteStream>>>>;

/// Hands the established connection to the library, once.
fn take_connection(slot: &ConnectionSlot) -> io::Result<packet_limit::PacketTruncator<Box<dyn ByteStream>>> {
    let stream = slot.lock().take();
    stream.map(packet_limit::PacketTruncator::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// Generates a client identifier of 23 characters, which every broker accepts.
fn random_client_id() -> String {
    let random = uuid::Uuid::new_v4().simple().to_string();
    random.chars().take(21).fold("gp".to_owned(), |id, next| id + next.encode_utf8(&mut [0; 4]))
}

fn error_text(error: &dyn std::error::Error) -> String {
    // The text of these errors includes their causes.
    json::truncate(&error.to_string(), MAX_ERROR_CHARS)
}

fn user_properties_v5(message: &rumqttc_v5::Publish) -> Vec<(String, String)> {
    let properties = message.properties.iter().flat_map(|properties| &properties.user_properties);
    properties.take(MAX_USER_PROPERTIES).cloned().collect()
}

fn with_user_properties_v5(
    options: rumqttc_v5::PublishOptions,
    user_properties: Vec<(String, String)>,
) -> rumqttc_v5::PublishOptions {
    if user_properties.is_empty() {
        return options;
    }
    options.properties(rumqttc_v5::PublishProperties { user_properties, ..Default::default() })
}

fn no_user_properties_v4(_: &rumqttc_v4::Publish) -> Vec<(String, String)> {
    Vec::new()
}

fn without_user_properties_v4(
    options: rumqttc_v4::PublishOptions,
    _: Vec<(String, String)>,
) -> rumqttc_v4::PublishOptions {
    options
}

/// Implements the connection with the crate `$mqtt`; the other parameters are the differences between the two APIs.
macro_rules! implement_version {
    ($name:ident, $mqtt:ident, $version:pat, $will:expr, $set_session:expr, $packet_limit:expr, $acknowledged:expr, $puback:expr, $received_properties:path, $with_properties:path) => {
        pub(super) mod $name {
            use super::*;
            use $mqtt::{
                AckMode, AsyncClient, ConnAck, ConnectReturnCode, ConnectionError, Event, EventLoop, LastWill,
            };
            use $mqtt::{ManualAck, MqttOptions, Outgoing, Packet, PubAck, PublishOptions, PublishResult, QoS};
            use $mqtt::{SubscribeFilterInput, SubscribeReasonCode};

            struct EventLoopReceiver(EventLoop);

            struct ClientSender(AsyncClient);

            /// Sends CONNECT on `stream` and waits for CONNACK.
            pub(in super::super) async fn connect(
                stream: Box<dyn ByteStream>,
                options: &ConnectOptions,
            ) -> Result<MqttConnection, ConnectError> {
                let other = |error: &dyn std::error::Error| ConnectError::Other(error_text(error));
                let client = AsyncClient::builder(mqtt_options(stream, options)).capacity(SEND_QUEUE);
                let (client, mut events) = client.try_build().map_err(|error| other(&error))?;
                let connack = loop {
                    match events.poll().await {
                        Ok(Event::Incoming(Packet::ConnAck(connack))) => break connack,
                        Ok(_) => {}
                        Err(error) => return Err(connect_error(&error)),
                    }
                };
                let max_packet_size: fn(&ConnAck) -> usize = $packet_limit;
                Ok(MqttConnection {
                    receiver: Box::new(EventLoopReceiver(events)),
                    sender: Arc::new(ClientSender(client)),
                    max_packet_size: max_packet_size(&connack),
                    is_version_5: stringify!($name) == "v5",
                })
            }

            fn mqtt_options(stream: Box<dyn ByteStream>, connect_options: &ConnectOptions) -> MqttOptions {
                let mut options = MqttOptions::new(
                    connect_options.client_id.clone().unwrap_or_else(random_client_id),
                    (connect_options.address.host.clone(), connect_options.address.port),
                );
                let slot: ConnectionSlot = Arc::new(Mutex::new(Some(stream)));
                options.set_socket_connector(move |_, _| std::future::ready(take_connection(&slot)));
                options.set_keep_alive(u16::try_from(connect_options.keep_alive.as_secs()).unwrap_or(u16::MAX));
                match &connect_options.credentials {
                    Some((name, Some(password))) => {
                        options.set_credentials(name.expose(), password.expose().as_bytes().to_vec());
                    }
                    Some((name, None)) => drop(options.set_username(name.expose())),
                    None => {}
                }
                if let Some(will) = &connect_options.will {
                    let will_message: fn(&str, &[u8]) -> LastWill = $will;
                    options.set_last_will(will_message(&will.topic, &will.payload));
                }
                if connect_options.session_expiry.is_some() {
                    options.set_ack_mode(AckMode::Manual);
                }
                let set_session: fn(&mut MqttOptions, &ConnectOptions) = $set_session;
                set_session(&mut options, connect_options);
                options
            }

            fn connect_error(error: &ConnectionError) -> ConnectError {
                match error {
                    ConnectionError::ConnectionRefused($version) => ConnectError::UnsupportedVersion(error_text(error)),
                    ConnectionError::ConnectionRefused(
                        ConnectReturnCode::BadUserNamePassword | ConnectReturnCode::NotAuthorized,
                    ) => ConnectError::Other("the broker refuses the user name or the password".to_owned()),
                    ConnectionError::ConnectionRefused(_) => ConnectError::Other(error_text(error)),
                    // A broker that does not know the version may send another code, or close the connection.
                    _ => ConnectError::UnsupportedVersion(error_text(error)),
                }
            }

            #[async_trait::async_trait]
            impl PacketReceiver for EventLoopReceiver {
                async fn next(&mut self) -> Result<Option<IncomingMessage>, String> {
                    match self.0.poll().await {
                        Ok(Event::Incoming(Packet::Publish(message))) => Ok(Some(IncomingMessage {
                            user_properties: $received_properties(&message),
                            topic: message.topic,
                            payload: message.payload,
                            retained: message.retain,
                            repeated: message.dup,
                            qos: message.qos as u8,
                            packet_id: message.pkid,
                        })),
                        // The event arrives after DISCONNECT was written.
                        Ok(Event::Outgoing(Outgoing::Disconnect)) => Err("the gateway disconnected".to_owned()),
                        Ok(_) => Ok(None),
                        Err(error) => Err(error_text(&error)),
                    }
                }
            }

            #[async_trait::async_trait]
            impl PacketSender for ClientSender {
                async fn publish(&self, message: OutgoingPublish<'_>) -> Result<PublishAck, String> {
                    let OutgoingPublish { topic, payload, retain, user_properties } = message;
                    let options =
                        $with_properties(PublishOptions::new(QoS::AtLeastOnce).retain(retain), user_properties);
                    let pending = self.0.publish_tracked(topic, payload, options).await;
                    let pending = pending.map_err(|error| error_text(&error))?;
                    let acknowledged: fn(&PubAck) -> Result<PublishAck, String> = $acknowledged;
                    match pending.wait_async().await.map_err(|error| error_text(&error))? {
                        PublishResult::Qos1(ack) => acknowledged(&ack),
                        other => Err(format!("unexpected acknowledgement from the broker ({other:?})")),
                    }
                }

                async fn subscribe(&self, filters: &[&str]) -> Result<Vec<bool>, String> {
                    let filters = filters.iter().map(|filter| SubscribeFilterInput::new(*filter, QoS::AtLeastOnce));
                    let pending = self.0.subscribe_many_tracked(filters).await.map_err(|error| error_text(&error))?;
                    let ack = pending.wait_async().await.map_err(|error| error_text(&error))?;
                    let granted = |code: &_| matches!(code, SubscribeReasonCode::Success(_));
                    Ok(ack.return_codes.iter().map(granted).collect())
                }

                async fn unsubscribe(&self, filters: &[&str]) -> Result<(), String> {
                    let filters = filters.iter().copied();
                    let pending = self.0.unsubscribe_many_tracked(filters).await.map_err(|error| error_text(&error))?;
                    pending.wait_async().await.map(drop).map_err(|error| error_text(&error))
                }

                async fn acknowledge(&self, packet_id: u16) -> Result<(), String> {
                    let puback: fn(u16) -> PubAck = $puback;
                    let ack = ManualAck::PubAck(puback(packet_id));
                    self.0.manual_ack(ack).await.map_err(|error| error_text(&error))
                }

                async fn disconnect(&self) -> Result<(), String> {
                    self.0.disconnect().await.map_err(|error| error_text(&error))
                }
            }
        }
    };
}

implement_version!(
    v5,
    rumqttc_v5,
    ConnectReturnCode::UnsupportedProtocolVersion | ConnectReturnCode::RefusedProtocolVersion,
    |topic, payload| LastWill::new(topic, payload, QoS::AtLeastOnce, true, None),
    |options, connect_options| {
        options.set_clean_start(connect_options.session_expiry.is_none());
        options.set_outgoing_inflight_upper_limit(MAX_PUBLISHES_IN_FLIGHT);
        if let Some(expiry) = connect_options.session_expiry {
            options.set_receive_maximum(connect_options.receive_maximum.map(NonZeroU16::get));
            options.set_session_expiry_interval(Some(u32::try_from(expiry.as_secs()).unwrap_or(u32::MAX)));
            let checkpoint = session_checkpoint::EmptyCheckpoint::new(options);
            options.set_session_store(checkpoint);
        }
        // The broker does not deliver longer messages.
        options.set_max_packet_size(Some((packet_limit::MAX_PACKET_BODY + packet_limit::MAX_FIXED_HEADER) as u32));
    },
    |connack| {
        let max = connack.properties.as_ref().and_then(|properties| properties.max_packet_size);
        max.map_or(usize::MAX, |max| max as usize)
    },
    |puback| match puback.reason {
        rumqttc_v5::PubAckReason::Success => Ok(PublishAck::Accepted),
        rumqttc_v5::PubAckReason::NoMatchingSubscribers => Ok(PublishAck::NoSubscribers),
        reason => Err(format!("the broker refuses the message ({reason:?})")),
    },
    |packet_id| PubAck::new(packet_id, None),
    super::user_properties_v5,
    super::with_user_properties_v5
);

implement_version!(
    v4,
    rumqttc_v4,
    ConnectReturnCode::RefusedProtocolVersion,
    |topic, payload| LastWill::new(topic, payload, QoS::AtLeastOnce, true),
    |options, connect_options| {
        options.set_clean_session(connect_options.session_expiry.is_none());
        options.set_max_packet_size(
            packet_limit::MAX_PACKET_BODY + packet_limit::MAX_FIXED_HEADER,
            packet_limit::MAX_PACKET_BODY + packet_limit::MAX_FIXED_HEADER,
        );
    },
    |_| usize::MAX,
    |_| Ok(PublishAck::Accepted),
    |packet_id| PubAck::new(packet_id),
    super::no_user_properties_v4,
    super::without_user_properties_v4
);
