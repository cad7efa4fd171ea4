//! MQTT client: MQTT 5, or 3.1.1 for brokers that do not know it (R104); TLS with verification of the host name (R129),
//! credentials from secrets (R130), bounded incoming messages (R116). It neither reconnects nor sends a message again:
//! its users do.

mod broker_address;
mod broker_settings;
mod connect_options;
mod mqtt_connect;
mod mqtt_session;
mod packet_limit;
mod protocol_versions;
mod session_checkpoint;

pub use broker_address::BrokerAddress;
pub use broker_settings::BrokerSettings;
pub use connect_options::{ConnectOptions, WillMessage};
pub use mqtt_connect::connect;
pub use mqtt_session::{MqttReceiver, MqttSendError, MqttSender};
pub use protocol_versions::{IncomingMessage, PublishAck};

/// Maximum size of a message in bytes, as the specification recommends (R116). A longer one is truncated or dropped.
pub const MAX_MESSAGE_BYTES: usize = 256 << 10;

/// Error for a broker that does not respond in time.
const CONNECT_TIMED_OUT: &str = "no answer in time";

/// Returns the canonical spelling of a topic: one slash before each level, none at the end (R109).
pub fn canonical_topic(topic: &str) -> String {
    let mut text = String::with_capacity(topic.len() + 1);
    for level in topic.split('/').filter(|level| !level.is_empty()) {
        text.push('/');
        text.push_str(level);
    }
    text
}

#[cfg(test)]
mod tests;
