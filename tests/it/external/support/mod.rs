//! Servers and programs of others that the tests of this module run.

pub mod agent_uri;
pub mod bridge_peer;
pub mod delaying_proxy;
pub mod hanging_file;
pub mod helm;
pub mod mosquitto;
pub mod mqtt_peers;
pub mod mqtt_task_agent;
pub mod npm;
pub mod oidc;
pub mod postgres;
pub mod python_packages;
pub mod redis;
pub mod redis_cluster;
pub mod reverse_proxy;
pub mod schemathesis;
pub mod sentinel;
pub mod state_server;
pub mod synapse;
