//! How a tunnel ends: what both sides are sent, and what the access log says.

use crate::{
    fault::{Fault, FaultCode},
    gateway::{
        call::CallState,
        websocket::{GOING_AWAY, NO_LONGER_AUTHORIZED},
    },
};

/// The mask of a close frame for the agent. It is not random, because nobody but the gateway chose the payload.
const CLOSE_MASK: [u8; 4] = [0x67, 0x61, 0x74, 0x65];
/// The code and reason of a close frame.
type CloseReason = (u16, &'static str);

/// Why a tunnel ends.
#[derive(Debug)]
pub(super) enum TunnelEnd {
    /// Both sides are closed, or one did not close in time after the other.
    Closed(Option<Fault>),
    /// The gateway shuts down.
    Shutdown,
    /// No message passed for too long.
    Idle,
    /// The tunnel reached its maximum age.
    Expired,
    /// The caller may no longer use the API.
    Unauthorized,
    /// The caller is gone.
    CallerGone,
    /// The caller's behaviour ended the tunnel.
    CallerFailed(Fault),
    /// The agent is gone, or its behaviour ended the tunnel.
    AgentFailed(Fault),
    /// The drain ended before the tunnel.
    CutOff(Fault),
}

impl TunnelEnd {
    /// Returns what the caller is told; `None` where the caller closed, or is gone.
    pub(super) fn reason_for_caller(&self) -> Option<CloseReason> {
        match self {
            Self::Closed(_) | Self::CallerGone | Self::CallerFailed(_) => None,
            Self::Shutdown | Self::CutOff(_) => Some(GOING_AWAY),
            Self::Idle => Some((1001, "Idle timeout")),
            Self::Expired => Some((1001, "Lifetime exceeded")),
            Self::Unauthorized => Some(NO_LONGER_AUTHORIZED),
            Self::AgentFailed(_) => Some((1011, "The agent failed")),
        }
    }

    /// Returns what the agent is told; `None` where the agent closed, or is gone.
    pub(super) fn reason_for_agent(&self) -> Option<CloseReason> {
        match self {
            Self::Closed(_) | Self::AgentFailed(_) => None,
            _ => Some((1001, "")),
        }
    }

    /// Returns how the call ended.
    pub(super) fn into_call_state(self) -> CallState {
        match self {
            Self::Closed(None) | Self::Shutdown | Self::Idle | Self::Expired | Self::Unauthorized => {
                CallState::Answered(101)
            }
            Self::CallerGone => CallState::CallerGone(101),
            Self::Closed(Some(fault)) | Self::CallerFailed(fault) | Self::AgentFailed(fault) | Self::CutOff(fault) => {
                CallState::FailedMidResponse(101, fault)
            }
        }
    }
}

/// Returns the fault that an agent's close code reports, if it reports one.
pub(super) fn close_code_fault(code: Option<u16>) -> Option<Fault> {
    match code {
        None | Some(1000 | 1001 | 1005 | 1012 | 1013 | 3000..=4999) => None,
        Some(code) => {
            let fault = Fault::new(FaultCode::AgentError, "The agent closed the connection");
            Some(fault.with_detail(format!("the agent closed its WebSocket with {code}")))
        }
    }
}

/// Returns a close frame for a caller (RFC 6455 §5.5.1).
pub(super) fn close_frame_for_caller(reason: CloseReason) -> Vec<u8> {
    let payload = close_payload(reason);
    [&[0x88, payload.len() as u8][..], &payload].concat()
}

/// Returns a close frame for an agent, which is masked.
pub(super) fn close_frame_for_agent(reason: CloseReason) -> Vec<u8> {
    let payload = close_payload(reason);
    let masked: Vec<u8> = payload.iter().zip(CLOSE_MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
    [&[0x88, 0x80 | payload.len() as u8][..], &CLOSE_MASK, &masked].concat()
}

/// Returns the payload of a close frame: at most 125 bytes.
fn close_payload(reason: CloseReason) -> Vec<u8> {
    let (code, reason) = reason;
    let mut payload = [&code.to_be_bytes()[..], reason.as_bytes()].concat();
    payload.truncate(125);
    payload
}

#[cfg(test)]
mod tests {
    use super::{super::frame_position::FramePosition, *};

    #[test]
    fn close_frames_are_whole_frames_with_their_code() {
        for frame in [close_frame_for_caller(GOING_AWAY), close_frame_for_agent(GOING_AWAY)] {
            let mut position = FramePosition::default();
            assert_eq!(position.pass_frame(&frame), frame.len());
            assert_eq!(position.close().and_then(|close| close.get()), Some(1001));
            assert!(position.is_between_frames());
        }
    }

    #[test]
    fn codes_of_failures_are_faults_and_others_are_not() {
        for code in [None, Some(1000), Some(1001), Some(1013), Some(4000)] {
            assert!(close_code_fault(code).is_none(), "{code:?}");
        }
        for code in [1002, 1006, 1009, 1011, 2999] {
            assert_eq!(close_code_fault(Some(code)).unwrap().code(), FaultCode::AgentError, "{code}");
        }
    }
}
