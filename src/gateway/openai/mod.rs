//! OpenAI's API in front of every agent: `/openai/v1/models`, `/chat/completions` and `/responses`. Pure translations: a
//! request becomes the input of a call, which takes every step of calls, and the agent's answer becomes a message.

mod agent_answer;
mod agent_stream;
mod chat_completion;
mod completion_call;
mod completion_request;
mod completion_responder;
mod completion_stream;
mod config;
mod conversation;
mod finish_reason;
mod input_mapping;
mod json_object;
mod model_list;
mod model_name;
mod openai_error;
mod openai_handler;
mod repeated_text;
mod response_object;
mod stream_writer;

pub(super) use completion_call::{check_call, check_caller, read_request, set_agent_headers};
pub(super) use completion_request::CompletionEndpoint;
pub use config::OpenAiConfig;
pub(super) use openai_error::{SHOULD_RETRY, should_retry, to_openai_error};
pub(super) use openai_handler::handle_openai_request;
