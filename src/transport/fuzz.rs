//! Entry points for fuzzing: what agents send over other protocols than HTTP.

pub use super::{mqtt::fuzz::check_mqtt_messages, websocket::fuzz::check_websocket_replies};
