//! A call to an upstream, in the form that every transport takes.

use super::{headers::HeaderMutations, upstream_body::RequestBody};
use http::{HeaderMap, Method, uri::PathAndQuery};

/// A call to an upstream.
#[derive(Debug)]
pub struct UpstreamCall<'a> {
    /// The call's id, for transports that carry it outside of header fields.
    pub id: &'a str,
    /// The operation's name; empty for the agent's default operation.
    pub operation: &'a str,
    /// The method.
    pub method: Method,
    /// Path and query, if they differ from those of the agent's endpoint.
    pub path: Option<PathAndQuery>,
    /// The caller's header fields, unfiltered; the transport strips the fields that must not cross.
    pub headers: &'a HeaderMap,
    /// The body.
    pub body: RequestBody,
    /// The header fields that the gateway adds, replaces and removes.
    pub header_mutations: HeaderMutations<'a>,
    /// The instruction for the agent in natural language, for transports that have a field for it; others ignore it.
    pub instruction: Option<&'a str>,
}
