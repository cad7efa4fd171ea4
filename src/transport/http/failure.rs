//! Faults of HTTP upstreams: a general sentence for the caller, and the details for the log.

use crate::{
    fault::{Code, Fault, Reach},
    net::{Unreachable, chain},
};
use std::{error::Error, fmt::Display, io, time::Duration};

/// `Retry-After` of an agent that refuses connections: it may be back soon.
const SOON: Duration = Duration::from_secs(1);

/// Errors of this machine, not of the agent: no descriptors (EMFILE, ENFILE), ports, buffers or memory.
const OURS: [i32; 5] = [24, 23, 99, 105, 12];

pub(super) fn unreachable(why: &Unreachable) -> Fault {
    unavailable(match why {
        Unreachable::Refused { .. } | Unreachable::Socket { .. } => format!("address refused by policy: {why}"),
        Unreachable::Unknown { .. } => why.to_string(),
    })
}

fn unavailable(detail: impl Display) -> Fault {
    Fault::new(Code::AgentUnavailable, "The agent cannot be reached")
        .detail(detail)
        .retry_after(SOON)
        .reached(Reach::Nowhere)
}

/// The fault of a connection that could not be opened.
pub(super) fn connecting(at: &dyn Display, why: &io::Error) -> Fault {
    if why.raw_os_error().is_some_and(|errno| OURS.contains(&errno)) {
        return Fault::new(Code::Overloaded, "The gateway has no free connection")
            .detail(format_args!("connecting to {at}: {why}"))
            .retry_after(SOON);
    }
    match why.kind() {
        io::ErrorKind::TimedOut => too_late(format_args!("connecting to {at}: {why}")).reached(Reach::Nowhere),
        _ => unavailable(format_args!("connecting to {at}: {why}")),
    }
}

/// The fault of a failed TLS handshake: a wrong certificate, a wrong name, or no TLS at all.
pub(super) fn securing(at: &dyn Display, why: &dyn Display) -> Fault {
    Fault::new(Code::AgentError, "No secure connection to the agent could be established")
        .detail(format_args!("TLS to {at}: {why}"))
        .reached(Reach::Nowhere)
}

pub(super) fn too_late(detail: impl Display) -> Fault {
    Fault::new(Code::Timeout, "The agent did not answer in time").detail(detail)
}

/// The fault of a response that did not arrive or cannot be parsed.
pub(super) fn unanswered(why: &hyper::Error) -> Fault {
    let message = match why.is_parse() {
        true => "The agent's reply is not valid HTTP",
        false => "The agent closed the connection without a reply",
    };
    match why.is_parse() {
        true => broken(message, why),
        false => broken(message, why).reached(Reach::Unsure),
    }
}

/// The fault of a response that breaks HTTP.
pub(super) fn unbelievable(detail: impl Display) -> Fault {
    Fault::new(Code::AgentError, "The agent's reply is not valid HTTP").detail(detail)
}

/// The fault of a truncated response body.
pub(super) fn cut_off(why: &hyper::Error) -> Fault {
    broken("The agent's reply ended before it was complete", why)
}

fn broken(message: &'static str, why: &hyper::Error) -> Fault {
    if why.is_timeout() {
        return too_late(chain(why));
    }
    Fault::new(Code::AgentError, message).detail(chain(why))
}

/// Whether the agent says that it has not processed the request: it refused the HTTP/2 stream, or the stream is above
/// the last one that a closing connection serves (RFC 9113 §8.7).
pub(super) fn is_unprocessed(why: &hyper::Error) -> bool {
    let mut cause = why.source();
    while let Some(inner) = cause {
        if let Some(inner) = inner.downcast_ref::<h2::Error>() {
            let graceful = inner.is_go_away() && inner.is_remote() && inner.reason() == Some(h2::Reason::NO_ERROR);
            return graceful || (inner.is_remote() && inner.reason() == Some(h2::Reason::REFUSED_STREAM));
        }
        cause = inner.source();
    }
    false
}
