//! A request that is not sent, for explanations.

use http::request;

/// A request that is not sent.
#[derive(Debug)]
pub struct RequestPreview {
    /// The head. It contains the gateway's credential, marked as sensitive.
    pub head: request::Parts,
    /// The length of the body, if the transport writes another one than the call has.
    pub body_length: Option<usize>,
}
