//! Servers of OpenAI's chat completions as agents: the input of a call becomes a conversation, and the model's answer the
//! result of the call. The requests go over HTTP as those of any other agent, with its connections, credential,
//! timeouts and retries.

mod completion;
mod config;
mod default_contract;
mod json_reply;
mod model_answer;
mod model_operation;
mod model_request;
mod openai_transport;
mod server_error;
mod streamed_answer;
#[cfg(test)]
mod tests;

pub use config::{AnswerForm, EndpointConfig, EndpointKind};
pub use default_contract::with_default_contract;
pub(super) use openai_transport::OpenAiTransport;
