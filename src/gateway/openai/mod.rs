//! OpenAI's API in front of every agent: `/openai/v1/models`, `/chat/completions` and `/responses`. Pure translations: a
//! request becomes the input of a call, which takes every step of calls, and the agent's answer becomes a message.

mod agent_answer;
mod chat_completion;
mod completion_call;
mod completion_request;
mod completion_stream;
mod config;
mod conversation;
mod input_mapping;
mod json_object;
mod model_list;
mod openai_error;
mod openai_handler;
mod response_object;

pub(super) use completion_call::{authenticate, check_call, read_request, set_agent_headers};
pub(super) use completion_request::CompletionEndpoint;
pub use config::OpenAiConfig;
pub(super) use openai_error::to_openai_error;
pub(super) use openai_handler::handle_openai_request;
