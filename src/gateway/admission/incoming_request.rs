//! The request of a call: that of a session, or for a dry run one that is complete already.

use crate::{
    fault::Result,
    http_server::{BodyState, HttpSession},
};
use bytes::Bytes;
use http::request;
use std::time::Instant;

/// The request of a call, whose body may not be read yet.
pub(in crate::gateway) enum IncomingRequest<'a> {
    /// A request over the network.
    Session(&'a mut HttpSession),
    /// A request of a dry run.
    Complete(&'a mut CompleteRequest),
}

/// A request with its whole body.
pub(in crate::gateway) struct CompleteRequest {
    pub(in crate::gateway) head: request::Parts,
    /// The body, until it is read.
    pub(in crate::gateway) body: Option<Bytes>,
}

impl<'a> From<&'a mut HttpSession> for IncomingRequest<'a> {
    fn from(session: &'a mut HttpSession) -> Self {
        Self::Session(session)
    }
}

impl<'a> From<&'a mut CompleteRequest> for IncomingRequest<'a> {
    fn from(request: &'a mut CompleteRequest) -> Self {
        Self::Complete(request)
    }
}

impl IncomingRequest<'_> {
    /// Returns the head of the request.
    pub(super) fn head(&self) -> &request::Parts {
        match self {
            Self::Session(session) => session.head(),
            Self::Complete(request) => &request.head,
        }
    }

    /// Returns whether the request has no body.
    pub(super) fn detect_empty_body(&mut self) -> bool {
        match self {
            Self::Session(session) => session.body_state() == BodyState::Empty,
            Self::Complete(request) => request.body.as_ref().is_none_or(Bytes::is_empty),
        }
    }

    /// Sends `100 Continue` to a caller that waits for it.
    pub(super) async fn send_continue_if_expected(&mut self) {
        if let Self::Session(session) = self {
            session.send_continue_if_expected().await;
        }
    }

    /// Reads the next part of the body; `None` at the end.
    ///
    /// # Errors
    /// 400 or 408.
    pub(super) async fn read_body_chunk(&mut self, deadline: Instant) -> Result<Option<Bytes>> {
        match self {
            Self::Session(session) => session.read_body_chunk(deadline.into()).await,
            Self::Complete(request) => Ok(request.body.take()),
        }
    }
}
