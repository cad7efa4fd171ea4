//! Load shedding before and after authentication, and the latency samples of adaptive concurrency. A subrequest of an
//! admitted call, such as a pipeline step, is never shed.

use super::{Gateway, admission::Admitted, call::Call};
use crate::{
    auth::Caller,
    fault::{CallProgress, Fault, FaultCode, Result},
    limit::{LatencySample, SampleOutcome},
    transport::{Admission as _, UpstreamReply},
};
use http::{HeaderName, HeaderValue, StatusCode};
use pingora_http::RequestHeader;
use std::{
    hash::{Hash, Hasher},
    sync::atomic::AtomicU64,
    time::Duration,
};

impl Gateway {
    /// Checks a call of this caller against load shedding, before it is counted or its body is read.
    ///
    /// # Errors
    /// 503 when the call is shed.
    pub(super) fn check_load(&self, call: &Call, caller: &Caller) -> Result<()> {
        if call.exempt_from_shedding { Ok(()) } else { self.limits.shed_by_tier(caller.tier.as_deref()) }
    }

    /// Sheds load before authentication when a request carries the same credentials as the previous request on this
    /// connection.
    ///
    /// # Errors
    /// As [`Gateway::check_load`].
    pub(super) fn shed_before_authentication(
        &self,
        call: &mut Call,
        head: &RequestHeader,
        last_caller: &AtomicU64,
    ) -> Result<()> {
        if self.limits.is_shedding() {
            let config = self.config.load();
            let credentials = CredentialValues { head, names: config.auth.credential_headers() };
            call.exempt_from_shedding = self.limits.shed_before_authentication(last_caller, credentials)?;
        }
        Ok(())
    }

    /// Stores the tier of this connection's caller while load is shed.
    pub(super) fn remember_caller_tier(&self, call: &Call, head: &RequestHeader, last_caller: &AtomicU64) {
        if let Some(caller) = call.caller().filter(|_| self.limits.is_shedding()) {
            let config = self.config.load();
            let credentials = CredentialValues { head, names: config.auth.credential_headers() };
            self.limits.remember_connection_caller(last_caller, credentials, caller.tier.as_deref());
        }
    }
}

/// The values of the credential headers, which tell apart the callers on one connection; a certificate is the
/// connection's.
struct CredentialValues<'a> {
    head: &'a RequestHeader,
    names: &'a [HeaderName],
}

impl Hash for CredentialValues<'_> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        for name in self.names {
            self.head.headers.get(name).map(HeaderValue::as_bytes).hash(hasher);
        }
    }
}

/// Records the latency sample of an upstream call. A call with a `streamed` request body gives no sample, because its
/// latency may be the caller's; nor does a call that ends while the gateway's own runtime is delayed.
pub(super) fn record_latency_sample(
    gateway: &Gateway,
    admitted: &Admitted,
    sample: LatencySample<'_>,
    streamed: bool,
    result: &Result<UpstreamReply>,
) {
    let outcome = match result {
        Ok(_) if streamed || gateway.limits.is_runtime_delayed() => SampleOutcome::Ignored,
        Ok(reply) => match reply.status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => SampleOutcome::Overloaded,
            // An error response may be fast.
            status if status.is_server_error() => SampleOutcome::Ignored,
            _ => SampleOutcome::Responded,
        },
        Err(fault) if !streamed && is_upstream_timeout(fault) => {
            let timeouts = admitted.upstream_set().timeouts();
            let threshold = timeouts.first_byte.min(timeouts.total).mul_f32(0.9);
            // A timeout that the caller shortened (`X-Request-Timeout`) says nothing about the agent.
            if sample.elapsed().unwrap_or(Duration::ZERO) >= threshold {
                SampleOutcome::Overloaded
            } else {
                SampleOutcome::Ignored
            }
        }
        Err(_) => SampleOutcome::Ignored,
    };
    sample.finish(outcome);
}

fn is_upstream_timeout(fault: &Fault) -> bool {
    fault.code() == FaultCode::Timeout && fault.progress() != Some(CallProgress::NotSent)
}
