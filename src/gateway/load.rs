//! What calls say of how much there is to do: what an agent's answer teaches its bound, and which calls the gateway
//! refuses while it has too much to do itself. A part of a call that was let in, such as a step of a pipeline, is not
//! refused for that.

use super::{Gateway, World, admit::Admitted, call::Call};
use crate::{
    auth::Caller,
    fault::{Code, Fault, Reach, Result},
    limit::{Question, Said},
    transport::{Admission as _, Reply},
};
use http::{HeaderName, HeaderValue, StatusCode, header::AUTHORIZATION};
use pingora_http::RequestHeader;
use std::{sync::atomic::AtomicU64, time::Duration};

impl Gateway {
    /// Lets a call of this caller in, or refuses it before anything is counted or read of it.
    ///
    /// # Errors
    /// The gateway has too much to do.
    pub(super) fn let_in(&self, call: &Call, caller: &Caller) -> Result<()> {
        if call.let_in { Ok(()) } else { self.limits.let_in(caller.tier.as_deref()) }
    }

    /// The same before it is known who calls, for whoever shows what was shown last over this connection.
    ///
    /// # Errors
    /// As [`Gateway::let_in`].
    pub(super) fn turn_away(&self, call: &mut Call, (head, last): (&RequestHeader, &AtomicU64)) -> Result<()> {
        if self.limits.is_shedding() {
            call.let_in = self.limits.turn_away(last, shown(head, &self.world.load()))?;
        }
        Ok(())
    }

    /// Keeps who called over this connection, while calls are refused.
    pub(super) fn remember(&self, call: &Call, (head, last): (&RequestHeader, &AtomicU64)) {
        if let Some(caller) = call.caller().filter(|_| self.limits.is_shedding()) {
            self.limits.remember(last, shown(head, &self.world.load()), caller.tier.as_deref());
        }
    }
}

/// What tells callers on one connection apart: their certificate is the connection's.
fn shown<'a>(head: &'a RequestHeader, world: &World) -> [Option<&'a [u8]>; 2] {
    let of = |name: &HeaderName| head.headers.get(name).map(HeaderValue::as_bytes);
    [of(&AUTHORIZATION), world.key_header.as_ref().and_then(of)]
}

/// Tells the agent's bound what came of a question. A caller that sends its body slowly makes every agent slow, so
/// nothing is learnt from a body that was `streamed`; nor while the gateway itself is late.
pub(super) fn learn(
    gateway: &Gateway,
    admitted: &Admitted,
    (question, streamed): (Question<'_>, bool),
    made: &Result<Reply>,
) {
    let said = match made {
        Ok(_) if streamed || gateway.limits.is_late() => Said::Nothing,
        Ok(reply) => match reply.status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => Said::TooMuch,
            // What fails may fail at once.
            status if status.is_server_error() => Said::Nothing,
            _ => Said::Answer,
        },
        Err(fault) if !streamed && is_late(fault) => {
            let bounds = admitted.route().bounds();
            let patience = bounds.first_byte.min(bounds.total).mul_f32(0.9);
            // What a caller cut short (`X-Request-Timeout`) says nothing of the agent.
            if question.took().unwrap_or(Duration::ZERO) >= patience { Said::TooMuch } else { Said::Nothing }
        }
        Err(_) => Said::Nothing,
    };
    question.ended(said);
}

fn is_late(fault: &Fault) -> bool {
    fault.code() == Code::Timeout && fault.reach() != Some(Reach::Nowhere)
}
