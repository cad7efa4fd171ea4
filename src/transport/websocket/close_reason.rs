//! Why a WebSocket connection failed, the close code for its peer (RFC 6455 §7.4.1), and the fault for a caller whose
//! agent closed the connection.

use crate::{
    fault::{CallProgress, Fault, FaultCode, NamedTimeout, TimeoutSource},
    transport::timeouts,
};
use std::time::Duration;
use tokio_tungstenite::tungstenite::{Error, error::ProtocolError};

/// The peer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebSocketPeer {
    /// An agent: the gateway is the client.
    Agent,
    /// A caller: the gateway is the server.
    Caller,
}

/// Why a connection can no longer be used.
#[derive(Debug)]
pub enum WebSocketError {
    /// The connection ended without a close frame.
    Disconnected,
    /// The peer did not answer a ping.
    PingTimeout,
    /// The peer did not accept written data in time.
    WriteTimeout,
    /// The peer sent too many control frames.
    ControlFrameFlood,
    /// A message or frame was larger than the limit.
    TooLarge,
    /// The peer violated the protocol: the close code, and the violation.
    ProtocolViolation(u16, String),
}

impl From<Error> for WebSocketError {
    fn from(error: Error) -> Self {
        match error {
            Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => Self::Disconnected,
            Error::Protocol(error) => Self::ProtocolViolation(1002, error.to_string()),
            Error::Utf8(error) => Self::ProtocolViolation(1007, error),
            Error::Capacity(_) => Self::TooLarge,
            Error::WriteBufferFull(_) => Self::WriteTimeout,
            Error::AttackAttempt => Self::ControlFrameFlood,
            _ => Self::Disconnected,
        }
    }
}

impl WebSocketError {
    /// The close code and reason for the peer, if it may still be there.
    pub fn close_frame(&self) -> Option<(u16, &'static str)> {
        match self {
            Self::Disconnected | Self::WriteTimeout => None,
            Self::PingTimeout => Some((1001, "no answer to a ping")),
            Self::ControlFrameFlood => Some((1008, "too many control frames")),
            Self::TooLarge => Some((1009, "the message is too large")),
            Self::ProtocolViolation(1007, _) => Some((1007, "the text is not UTF-8")),
            Self::ProtocolViolation(code, _) => Some((*code, "the frame is not valid")),
        }
    }

    /// The fault, where the peer is an agent.
    pub fn to_fault(&self) -> Fault {
        match self {
            Self::Disconnected => Fault::new(FaultCode::AgentError, "The agent closed the connection without a reply"),
            Self::PingTimeout => self.timeout_fault("agents.defaults.websocket.pong_timeout"),
            Self::WriteTimeout => self.timeout_fault("agents.defaults.timeouts.idle"),
            Self::TooLarge => Fault::new(FaultCode::AgentError, "The agent's reply is too large"),
            Self::ControlFrameFlood | Self::ProtocolViolation(..) => {
                Fault::new(FaultCode::AgentError, "The agent's reply is not a valid WebSocket message")
                    .with_detail(format_args!("{self:?}"))
            }
        }
    }
}

impl WebSocketError {
    fn timeout_fault(&self, setting: &'static str) -> Fault {
        let timeout = NamedTimeout { name: setting, after: None, source: TimeoutSource::Setting(setting.to_owned()) };
        timeouts::timeout_fault(format_args!("{self:?}")).with_named_timeout(&timeout).with_setting(setting)
    }
}

/// Maps the close code of an agent that has received the input to a fault, unless it says that the reply is complete.
/// `has_replied` says whether a part of the reply came before.
pub(super) fn close_fault(close: Option<(u16, String)>, has_replied: bool) -> Option<Fault> {
    let (code, reason) = close.filter(|(code, _)| *code != 1000)?;
    let unavailable = || Fault::from(FaultCode::AgentUnavailable).with_retry_after(Duration::from_secs(1));
    let fault = match code {
        // "Try again later" instead of a reply is a refusal, as the status 503 is.
        1013 if !has_replied => unavailable(),
        // An agent that goes away or restarts may have executed the call.
        1001 | 1012 | 1013 => unavailable().with_progress(CallProgress::PossiblySent),
        1003 => Fault::new(FaultCode::UnsupportedMediaType, "The agent does not take this media type"),
        1007 => Fault::new(FaultCode::InvalidInput, "The agent refused the input"),
        1009 => Fault::new(FaultCode::PayloadTooLarge, "The input is too large for the agent"),
        _ => Fault::from(FaultCode::AgentError),
    };
    Some(fault.with_detail(format_args!("the agent closed with {code}: {reason}")))
}
