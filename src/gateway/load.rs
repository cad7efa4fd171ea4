//! Load shedding before and after authentication, and the latency samples from which adaptive concurrency learns. A
//! part of an admitted call, such as a pipeline step, is never shed.

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
    /// Checks a call of this caller against load shedding, before it is counted or its body is read.
    ///
    /// # Errors
    /// 503 when the call is shed.
    pub(super) fn let_in(&self, call: &Call, caller: &Caller) -> Result<()> {
        if call.let_in { Ok(()) } else { self.limits.let_in(caller.tier.as_deref()) }
    }

    /// Sheds load before authentication when a request carries the same credentials as the previous request on this
    /// connection.
    ///
    /// # Errors
    /// As [`Gateway::check_load`].
    pub(super) fn turn_away(&self, call: &mut Call, (head, last): (&RequestHeader, &AtomicU64)) -> Result<()> {
        if self.limits.is_shedding() {
            call.let_in = self.limits.turn_away(last, shown(head, &self.world.load()))?;
        }
        Ok(())
    }

    /// Stores the tier of this connection's caller while load is shed.
    pub(super) fn remember(&self, call: &Call, (head, last): (&RequestHeader, &AtomicU64)) {
        if let Some(caller) = call.caller().filter(|_| self.limits.is_shedding()) {
            self.limits.remember(last, shown(head, &self.world.load()), caller.tier.as_deref());
        }
    }
}

/// Returns the credential headers, which tell apart the callers on one connection; a certificate is the connection's.
fn shown<'a>(head: &'a RequestHeader, world: &World) -> [Option<&'a [u8]>; 2] {
    let of = |name: &HeaderName| head.headers.get(name).map(HeaderValue::as_bytes);
    [of(&AUTHORIZATION), world.key_header.as_ref().and_then(of)]
}

/// Records the latency sample of an upstream call. A `streamed` request body gives no sample, because a slow sender
/// makes every agent slow; nor does a call that ends while the gateway itself is late.
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
            // An error response may be fast.
            status if status.is_server_error() => Said::Nothing,
            _ => Said::Answer,
        },
        Err(fault) if !streamed && is_late(fault) => {
            let bounds = admitted.route().bounds();
            let patience = bounds.first_byte.min(bounds.total).mul_f32(0.9);
            // A timeout that the caller shortened (`X-Request-Timeout`) says nothing about the agent.
            if question.took().unwrap_or(Duration::ZERO) >= patience { Said::TooMuch } else { Said::Nothing }
        }
        Err(_) => Said::Nothing,
    };
    question.ended(said);
}

fn is_late(fault: &Fault) -> bool {
    fault.code() == Code::Timeout && fault.reach() != Some(Reach::Nowhere)
}
