//! The stages of a call before its admission: authorised, and checked. Only the pipeline makes them.

use super::{call_preview::CallPreview, input_validation::CallInput};
use crate::{
    auth::Caller,
    gateway::{
        call_parameters::CallDeadline,
        requested_version::CompiledVersion,
        route::{CompiledOperation, Route},
    },
    limit::RateLimitStatus,
    transport::UpstreamSet,
    values::ClientKey,
};
use http::{HeaderName, HeaderValue};
use std::{net::IpAddr, sync::Arc, time::Instant};

/// A call whose caller is authenticated, authorised and within its rate limits, and whose head is valid. Its input has
/// not been read, and it holds no concurrency permit.
pub(in crate::gateway) struct AuthorizedCall {
    pub(super) route: Arc<Route>,
    pub(super) caller: Arc<Caller>,
    /// The client whose shares the call counts against.
    pub(super) client: ClientKey,
    pub(super) peer: IpAddr,
    pub(super) rate_limit_status: Option<RateLimitStatus>,
    pub(super) named_operation: Option<usize>,
    /// Whether the query parameter `version` is input of the agent. Known only if there is a query.
    pub(super) declares_version: bool,
    pub(super) version: Option<Arc<CompiledVersion>>,
    /// The version, if the caller named one.
    pub(super) requested_version: Option<HeaderValue>,
    pub(super) deadline: CallDeadline,
    pub(super) session_hash: Option<u64>,
    pub(super) delegation_chain: Option<HeaderValue>,
    /// The fields that tell the agent who calls.
    pub(super) caller_headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) idempotency_key: Option<String>,
    /// What is called instead of the agent's endpoints.
    pub(super) upstream: Option<UpstreamSet>,
}

impl AuthorizedCall {
    /// Returns the route of the agent.
    pub(in crate::gateway) fn route(&self) -> &Route {
        &self.route
    }

    /// Returns the caller.
    pub(in crate::gateway) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns when the call must end.
    pub(in crate::gateway) fn deadline(&self) -> Instant {
        self.deadline.at
    }

    /// Returns the client whose shares the call counts against.
    pub(in crate::gateway) fn client(&self) -> ClientKey {
        self.client
    }

    /// Sends the call to the agent's API, in this session.
    pub(in crate::gateway) fn set_upstream(&mut self, upstream: UpstreamSet, session_hash: Option<u64>) {
        self.upstream = Some(upstream);
        self.session_hash = session_hash;
    }

    /// Replaces the deadline by that of the agent's API.
    pub(in crate::gateway) fn set_deadline(&mut self, deadline: CallDeadline) {
        self.deadline = deadline;
    }

    /// Returns the operation that the path or the headers name, or the only one.
    pub(in crate::gateway) fn named_operation(&self) -> Option<usize> {
        self.named_operation
    }

    /// Returns the version that the caller named.
    pub(in crate::gateway) fn requested_version(&self) -> Option<&HeaderValue> {
        self.requested_version.as_ref()
    }

    /// Ends the call at `deadline`, if it would end later.
    pub(in crate::gateway) fn shorten_deadline(&mut self, deadline: CallDeadline) {
        if deadline.at < self.deadline.at {
            self.deadline = deadline;
        }
    }
}

/// A call with a valid input. It holds no concurrency permit: a caller that sends its body slowly, or waits for the
/// answer of another call with its idempotency key, keeps no other caller from the agent.
pub(in crate::gateway) struct CheckedCall {
    pub(super) authorized: AuthorizedCall,
    pub(super) operation: usize,
    pub(in crate::gateway) input: CallInput,
}

impl CheckedCall {
    /// Returns whether the query parameter `version` is input of the agent.
    pub(in crate::gateway) fn declares_version(&self) -> bool {
        self.authorized.declares_version
    }

    /// Returns the route of the agent.
    pub(in crate::gateway) fn route(&self) -> &Route {
        &self.authorized.route
    }

    /// Returns the caller.
    pub(in crate::gateway) fn caller(&self) -> &Caller {
        &self.authorized.caller
    }

    /// Returns the client whose shares the call counts against.
    pub(in crate::gateway) fn client(&self) -> ClientKey {
        self.authorized.client
    }

    /// Returns the rate limit that the call is closest to.
    pub(in crate::gateway) fn rate_limit_status(&self) -> Option<&RateLimitStatus> {
        self.authorized.rate_limit_status.as_ref()
    }

    /// Returns the operation that is called.
    pub(in crate::gateway) fn operation(&self) -> &CompiledOperation {
        self.authorized.route.operation(self.operation)
    }

    /// Returns when the call must end.
    pub(in crate::gateway) fn deadline(&self) -> Instant {
        self.authorized.deadline.at
    }

    /// Returns what a request to the agent would be made of, if the call were admitted.
    pub(in crate::gateway) fn preview(&self) -> CallPreview<'_> {
        let AuthorizedCall { route, version, session_hash, delegation_chain, caller_headers, .. } = &self.authorized;
        let (operation, version) = (self.operation(), version.as_deref());
        let (session_hash, delegation_chain) = (*session_hash, delegation_chain.as_ref());
        CallPreview { route, operation, version, session_hash, delegation_chain, caller_headers }
    }

    /// Returns the idempotency key of the call.
    pub(in crate::gateway) fn idempotency_key(&self) -> Option<&str> {
        self.authorized.idempotency_key.as_deref()
    }
}
