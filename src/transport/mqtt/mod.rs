//! Agents over MQTT (2389 Agent Protocol): a call becomes a task envelope on the agent's input topic, and the reply
//! arrives on a conversation topic with an unguessable name (R110–R112, R115). Agents of one broker share a connection.
//! A task is published once: if the connection is lost, the task's outcome is unknown, and the call is not retried.

mod agent_statuses;
mod broker_connection;
mod broker_key;
mod broker_session;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzz;
mod mqtt_connections;
mod mqtt_transport;
mod pending_tasks;
mod progress_events;
mod published_task;
mod reply_message;
mod status_reading;
mod task_envelope;

pub(super) use mqtt_connections::MqttConnections;

#[cfg(test)]
mod tests;
