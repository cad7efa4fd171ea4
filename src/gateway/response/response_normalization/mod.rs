//! Response normalization: agents report failures in many formats; the caller gets one format (R38, R40) without the
//! agent's internals (R41, R117). The full text goes to the log.
//! Pure functions: this module does no I/O and writes no response.

mod agent_fault;
mod agent_response;
mod error_body;
mod error_details;
mod error_status;
#[cfg(any(test, fuzzing))]
pub(in crate::gateway) mod fuzz;
mod public_text;
mod response_classification;
mod retry_after;

pub(in crate::gateway) use agent_response::{AgentResponse, ReadErrors, ResponseVerdict};
pub use error_details::ErrorDetails;
pub(in crate::gateway) use response_classification::{classify_response, may_embed_error};

#[cfg(test)]
mod tests;
