//! A reply that the gateway writes in the place of the server's.

use crate::transport::UpstreamReply;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

/// Returns a reply with a JSON body.
pub(super) fn json_reply(status: StatusCode, body: String, credential_sent: bool) -> UpstreamReply {
    let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    UpstreamReply { status, headers, body: Bytes::from(body).into(), credential_sent }
}
