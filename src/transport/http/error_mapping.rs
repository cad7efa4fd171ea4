//! Faults of HTTP upstreams: a general sentence for the caller, and the details for the log.

use crate::{
    fault::{CallProgress, Fault, FaultCode},
    net::{ResolveError, error_chain},
    transport::timeouts::timeout_fault,
};
use std::{error::Error, fmt::Display, io, time::Duration};

/// `Retry-After` of an agent that refuses connections: it may be back soon.
const RETRY_SOON: Duration = Duration::from_secs(1);

/// Errors of this machine, not of the agent: no descriptors (EMFILE, ENFILE), ports, buffers or memory.
const LOCAL_ERRNOS: [i32; 5] = [24, 23, 99, 105, 12];

pub(super) fn unresolvable_fault(error: &ResolveError) -> Fault {
    let setting = match error {
        ResolveError::Denied { .. } => "network.allowed_addresses",
        ResolveError::SocketDenied { .. } => "network.allowed_sockets",
        ResolveError::NoAddress { .. } => return unavailable_fault(error),
    };
    unavailable_fault(format_args!("address refused by policy: {error}")).with_setting(setting)
}

fn unavailable_fault(detail: impl Display) -> Fault {
    Fault::new(FaultCode::AgentUnavailable, "The agent cannot be reached")
        .with_detail(detail)
        .with_retry_after(RETRY_SOON)
        .with_progress(CallProgress::NotSent)
}

/// The fault of a connection that could not be opened.
pub(super) fn connect_fault(address: &dyn Display, error: &io::Error) -> Fault {
    if error.raw_os_error().is_some_and(|errno| LOCAL_ERRNOS.contains(&errno)) {
        return Fault::new(FaultCode::Overloaded, "The gateway has no free connection")
            .with_detail(format_args!("connecting to {address}: {error}"))
            .with_retry_after(RETRY_SOON);
    }
    match error.kind() {
        io::ErrorKind::TimedOut => {
            timeout_fault(format_args!("connecting to {address}: {error}")).with_progress(CallProgress::NotSent)
        }
        _ => unavailable_fault(format_args!("connecting to {address}: {error}")),
    }
}

/// The fault of a failed TLS handshake: a wrong certificate, a wrong name, or no TLS at all.
pub(super) fn tls_fault(address: &dyn Display, error: &dyn Display) -> Fault {
    Fault::new(FaultCode::AgentError, "No secure connection to the agent could be established")
        .with_detail(format_args!("TLS to {address}: {error}"))
        .with_progress(CallProgress::NotSent)
}

/// The fault of a response that did not arrive or cannot be parsed.
pub(super) fn no_response_fault(error: &hyper::Error) -> Fault {
    if error.is_parse() {
        return hyper_fault("The agent's reply is not valid HTTP", error);
    }
    hyper_fault("The agent closed the connection without a reply", error).with_progress(CallProgress::PossiblySent)
}

/// The fault of a response that breaks HTTP.
pub(super) fn invalid_response_fault(detail: impl Display) -> Fault {
    Fault::new(FaultCode::AgentError, "The agent's reply is not valid HTTP").with_detail(detail)
}

/// The fault of a truncated response body.
pub(super) fn truncated_body_fault(error: &hyper::Error) -> Fault {
    hyper_fault("The agent's reply ended before it was complete", error)
}

fn hyper_fault(message: &'static str, error: &hyper::Error) -> Fault {
    if error.is_timeout() {
        return timeout_fault(error_chain(error));
    }
    Fault::new(FaultCode::AgentError, message).with_detail(error_chain(error))
}

/// Whether the agent says that it has not processed the request: it refused the HTTP/2 stream, or the stream is above
/// the last one that a closing connection serves (RFC 9113 §8.7).
pub(super) fn is_unprocessed(error: &hyper::Error) -> bool {
    let mut cause = error.source();
    while let Some(source) = cause {
        if let Some(source) = source.downcast_ref::<h2::Error>() {
            let graceful = source.is_go_away() && source.is_remote() && source.reason() == Some(h2::Reason::NO_ERROR);
            return graceful || (source.is_remote() && source.reason() == Some(h2::Reason::REFUSED_STREAM));
        }
        cause = source.source();
    }
    false
}
