//! Validation of request heads against request smuggling: a head that two parsers could read differently is refused
//! before routing, authentication or forwarding. HTTP/1 heads are validated on their raw bytes, line by line as they
//! arrive, before Pingora parses them; HTTP/2 heads after the codec has decoded them.
//! This module knows nothing of agents, callers or rates, and allocates only to refuse a request.

mod chunked_framing;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod header_field;
mod http1_head;
mod http2_head;
mod refused_head;
mod request_line;

pub use chunked_framing::{ChunkedFramingValidator, InvalidChunkedFraming};
pub use header_field::HeadLimits;
pub use http1_head::{Http1HeadValidator, validate_http1_head};
pub use http2_head::validate_http2_head;
pub use refused_head::{RefusedHead, RefusedRequest, RefusedTarget};

#[cfg(test)]
mod tests;
