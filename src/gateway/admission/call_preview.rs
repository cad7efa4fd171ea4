//! What a request to an agent would be made of, for a dry run.

use crate::gateway::{
    requested_version::CompiledVersion,
    route::{CompiledOperation, Route},
};
use http::{HeaderName, HeaderValue};

/// What a request to the agent of a checked call would be made of. It admits nothing.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct CallPreview<'a> {
    pub(in crate::gateway) route: &'a Route,
    pub(in crate::gateway) operation: &'a CompiledOperation,
    pub(in crate::gateway) version: Option<&'a CompiledVersion>,
    pub(in crate::gateway) session_hash: Option<u64>,
    pub(in crate::gateway) delegation_chain: Option<&'a HeaderValue>,
    pub(in crate::gateway) caller_headers: &'a [(HeaderName, HeaderValue)],
}
