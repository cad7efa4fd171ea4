//! Responses to admitted calls (step 12): what a reply is (`response_normalization`, `reply_validation`), the headers
//! that the gateway adds, and streams.

mod browser_safety;
mod complete_reply;
mod error_events;
mod event_boundaries;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzz;
mod media_types;
mod reply_validation;
mod reported_agent_card;
mod responder;
mod response_normalization;
mod streamed_response;

pub(super) use browser_safety::{forbid_shared_caching, restrict_documents};
pub(super) use complete_reply::CompleteReply;
pub(super) use error_events::ErrorEventDetector;
pub(super) use event_boundaries::EventSplitter;
pub(super) use media_types::{
    failure_unit, has_content_coding, is_event_stream, is_media_type_requested, is_message_sequence, unrequested_stream,
};
pub(super) use reply_validation::ReplyValidator;
pub(super) use reported_agent_card::redact_reported_card;
pub(super) use responder::Responder;
pub use response_normalization::ErrorDetails;
pub(super) use response_normalization::ReadErrors;
pub(super) use response_normalization::may_embed_error;
pub(super) use streamed_response::StreamedResponse;
