//! Requests, answers, errors and streams of servers of OpenAI's API, and hostile ones among them. `tests/it/openai_agents.rs`
//! has the same through the gateway.

mod answers;
mod contracts;
mod errors;
mod requests;
mod streams;

use super::{config::EndpointConfig, model_operation::ModelOperation};
use crate::{agent::Agent, fault::Fault, transport::UpstreamReply};
use serde_json::{Value, json};
use std::sync::Arc;

/// A rule with these settings besides the kind and the model.
fn config(settings: Value) -> EndpointConfig {
    let mut all = json!({"kind": "openai", "model": "m"});
    all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    serde_json::from_value(all).unwrap()
}

/// An agent whose document has these members as well, with the contract that the rule gives it.
fn agent(members: Value, config: &EndpointConfig) -> Arc<Agent> {
    let mut document = json!({"id": "a", "name": "a", "endpoint": "https://llm.example/v1"});
    document.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    let agent = Agent::from_document(&document, [0; 32]).unwrap();
    super::with_default_contract(Arc::new(agent), config)
}

/// The only operation of such an agent.
fn operation(members: Value, config: &EndpointConfig) -> ModelOperation {
    ModelOperation::compile(&agent(members, config).operations[0], config)
}

/// The status and the body of a reply.
async fn read(reply: Result<UpstreamReply, Fault>) -> (u16, Value) {
    let mut reply = reply.unwrap();
    let body = reply.body.peek(1 << 20).await.unwrap().bytes;
    (reply.status.as_u16(), serde_json::from_slice(&body).unwrap())
}
