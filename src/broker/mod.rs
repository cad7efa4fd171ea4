//! Conversations with MQTT brokers: MQTT 5 first, 3.1.1 where that is not known (R104), TLS with the host's name
//! checked (R129), credentials from where they are named (R130), and messages bounded on their way in (R116).
//! A conversation that is lost stays lost: nothing is sent again, and connecting anew is its user's.

mod address;
mod clip;
mod line;
mod opening;
mod settings;
mod talk;

pub use address::Address;
pub use line::{Heard, Message};
pub use opening::{Opening, Will, open};
pub use settings::BrokerSettings;
pub use talk::{Speaker, Unheard, Words};

use std::time::Duration;

/// Bytes of one message; the specification recommends no more (R116). A longer one comes cut, or not at all.
pub const LARGEST: usize = 256 << 10;

/// What there is to say of a broker that says nothing.
const SILENT: &str = "no answer in time";

/// The one spelling of a topic: one slash before each level, none at the end (R109).
pub fn canonical(topic: &str) -> String {
    let mut text = String::with_capacity(topic.len() + 1);
    for level in topic.split('/').filter(|level| !level.is_empty()) {
        text.push('/');
        text.push_str(level);
    }
    text
}

/// Half of `pause` to one and a half of it: gateways that lost a broker together do not come back together.
pub fn jittered(pause: Duration) -> Duration {
    let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
    pause / 2 + pause.mul_f64((random >> 32) as f64 / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests;
