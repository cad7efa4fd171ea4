//! What calls say of how much there is to do: what an agent's answer teaches its bound, and which calls the gateway
//! refuses while it has too much to do itself. A part of a call that was let in, such as a step of a pipeline, is not
//! refused for that.

use super::{Gateway, admit::Admitted, call::Call};
use crate::{
    auth::Caller,
    fault::{Code, Fault, Reach, Result},
    limit::{Question, Said},
    transport::{Admission as _, Reply},
};
use http::StatusCode;
use std::time::Duration;

impl Gateway {
    /// Lets a call of this caller in, or refuses it before anything is counted or read of it.
    ///
    /// # Errors
    /// The gateway has too much to do.
    pub(super) fn let_in(&self, call: &Call, caller: &Caller) -> Result<()> {
        if call.part { Ok(()) } else { self.limits.let_in(caller.tier.as_deref()) }
    }
}

/// Tells the agent's bound what came of a question. A caller that sends its body slowly makes every agent slow, so
/// nothing is learnt from a body that was `streamed`.
pub(super) fn learn(admitted: &Admitted, question: Question<'_>, streamed: bool, made: &Result<Reply>) {
    let said = match made {
        Ok(_) if streamed => Said::Nothing,
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
