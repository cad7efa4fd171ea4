//! The MQTT bridge as a front end: which agents are announced on the brokers, and the calls of the tasks that arrive.

mod mqtt_bridge_agents;
mod mqtt_bridge_invoker;

pub use mqtt_bridge_agents::MqttBridge;
