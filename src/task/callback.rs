//! Callbacks (webhooks) at the end of a task: a POST signed according to Standard Webhooks, retried with growing delays
//! for a limited time. Callers choose the URL, so private addresses are refused and redirects are not followed.

use crate::{
    fault::{Fault, FaultCode, Result},
    net::{AddressRange, FetchClient},
    trace::{ActiveSpan, SpanKind, Tracer, semantic_conventions as names},
    values::{ConfigDuration, Secret, SecretRef, random_duration},
};
use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderValue, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};
use time::OffsetDateTime;

/// Maximum length of a callback URL, in bytes.
const MAX_URL_LENGTH: usize = 2_000;
/// Delay after the first failed attempt, and the longest delay.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(3_600);

/// Callbacks (webhooks) at the end of tasks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Callbacks")]
#[serde(deny_unknown_fields)]
pub struct CallbackConfig {
    /// Signing key, at least 16 bytes: `whsec_` and Base64 as in Standard Webhooks, or any text.
    pub secret: SecretRef,
    /// Timeout of one attempt; 1s to 1m. Default: 10s.
    #[serde(default = "default_attempt_timeout")]
    pub attempt_timeout: ConfigDuration,
    /// How long after a task's end delivery is retried; 1s to 7d. The task is kept at least as long. Default: 1h.
    #[serde(default = "default_delivery_timeout")]
    pub delivery_timeout: ConfigDuration,
    /// Addresses beyond the internet at which callers may have webhooks, as in `network.allowed_addresses`, which does
    /// not apply here. Default: none.
    #[serde(default)]
    pub allowed_addresses: Vec<AddressRange>,
}

fn default_attempt_timeout() -> ConfigDuration {
    ConfigDuration::from_secs(10)
}

fn default_delivery_timeout() -> ConfigDuration {
    ConfigDuration::from_secs(3_600)
}

impl CallbackConfig {
    /// Returns every unusable value, by its path within this section.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(ConfigDuration::from_secs(1)..=ConfigDuration::from_secs(60)).contains(&self.attempt_timeout) {
            problems.push(format!("attempt_timeout: must be 1s to 1m, not {}", self.attempt_timeout));
        }
        if !(ConfigDuration::from_secs(1)..=ConfigDuration::from_secs(7 * 86_400)).contains(&self.delivery_timeout) {
            problems.push(format!("delivery_timeout: must be 1s to 7d, not {}", self.delivery_timeout));
        }
        problems
    }
}

/// Delivers callbacks.
pub(super) struct CallbackSender {
    pub(super) config: CallbackConfig,
    key: hmac::Key,
    client: FetchClient,
    tracer: Option<Arc<Tracer>>,
}

/// A callback that is due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Callback<'a> {
    pub(super) url: &'a str,
    pub(super) id: &'a str,
    /// The trace context of the call that started the task.
    pub(super) traceparent: Option<&'a str>,
}

impl CallbackSender {
    /// Creates a sender with the configured secret.
    ///
    /// # Errors
    /// The secret cannot be used.
    pub(super) fn new(
        config: &CallbackConfig,
        client: FetchClient,
        tracer: Option<Arc<Tracer>>,
    ) -> std::result::Result<Self, Vec<String>> {
        let refuse = |reason: String| vec![format!("callbacks.secret: {reason}")];
        let secret = config.secret.load().map_err(refuse)?;
        let key = signing_key(&secret)
            .ok_or_else(|| refuse("is not a key of at least 16 bytes (any text, or whsec_ and Base64)".to_owned()))?;
        Ok(Self { config: config.clone(), key, client, tracer })
    }

    /// Checks a callback URL that a caller chose.
    ///
    /// # Errors
    /// `InvalidInput`, with what is required.
    pub(super) fn check_url(&self, url: &str) -> Result<()> {
        let refuse = |reason: String| Err(Fault::new(FaultCode::InvalidInput, format!("The callback URL {reason}")));
        if url.len() > MAX_URL_LENGTH {
            return refuse(format!("is too long (at most {MAX_URL_LENGTH} bytes)"));
        }
        self.client.check_untrusted_url(url).or_else(refuse)
    }

    /// Makes one attempt to deliver a callback.
    ///
    /// # Errors
    /// Why it failed, for the log.
    pub(super) async fn deliver(&self, callback: Callback<'_>, body: Vec<u8>) -> std::result::Result<(), String> {
        let Callback { url, id, .. } = callback;
        let mut span = self.start_span(&callback);
        let timestamp = OffsetDateTime::now_utc().unix_timestamp().to_string();
        let signed = [format!("{id}.{timestamp}.").as_bytes(), &body].concat();
        let signature = format!("v1,{}", STANDARD.encode(hmac::sign(&self.key, &signed)));
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in [("webhook-id", id), ("webhook-timestamp", &timestamp), ("webhook-signature", &signature)]
        {
            headers.insert(name, HeaderValue::from_str(value).map_err(|error| error.to_string())?);
        }
        if let Some(span) = &span {
            span.scope().propagate(&mut headers);
        }
        let posted = self.client.post_json(url, headers, body, self.config.attempt_timeout).await;
        if let (Some(span), Ok(status)) = (&mut span, &posted) {
            span.set(names::HTTP_RESPONSE_STATUS_CODE, || *status);
        }
        match (span, &posted) {
            (None, _) => {}
            (Some(span), Ok(200..=299)) => span.finish(),
            (Some(span), Ok(status)) => span.fail(status.to_string()),
            (Some(span), Err(_)) => span.fail("CallbackFailed"),
        }
        match posted {
            Ok(200..=299) => Ok(()),
            Ok(status) => Err(format!("receiver responded with status {status}")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Begins the span of an attempt, in the trace of the call that started the task.
    fn start_span(&self, callback: &Callback<'_>) -> Option<ActiveSpan> {
        let call = self.tracer.as_ref()?.resume(callback.traceparent?)?;
        let mut span = ActiveSpan::start(&call, SpanKind::Client, || "webhook".into());
        span.set(names::HTTP_REQUEST_METHOD, || "POST");
        // Of the caller's URL the host says where the callback goes; the rest may hold a secret.
        if let Some(host) = callback.url.parse::<http::Uri>().ok().and_then(|url| url.host().map(str::to_owned)) {
            span.set(names::SERVER_ADDRESS, || host);
        }
        Some(span)
    }

    /// Returns when the next attempt is due after `attempts` failed ones; `None` after the delivery timeout.
    pub(super) fn next_attempt(&self, attempts: u32, ended: OffsetDateTime) -> Option<OffsetDateTime> {
        let delay = FIRST_RETRY_DELAY.saturating_mul(1 << attempts.min(12)).min(MAX_RETRY_DELAY);
        self.postponed_attempt(delay, ended)
    }

    /// Returns when an attempt is due that is postponed by `delay`; `None` after the delivery timeout.
    pub(super) fn postponed_attempt(&self, delay: Duration, ended: OffsetDateTime) -> Option<OffsetDateTime> {
        // Between half of the delay and all of it.
        let due = OffsetDateTime::now_utc() + delay / 2 + random_duration(delay / 2);
        Some(due).filter(|due| *due <= ended + self.config.delivery_timeout.get())
    }
}

fn signing_key(secret: &Secret) -> Option<hmac::Key> {
    let text = secret.expose();
    let bytes = match text.strip_prefix("whsec_") {
        Some(encoded) => STANDARD.decode(encoded).ok()?,
        None => text.as_bytes().to_vec(),
    };
    (bytes.len() >= 16).then(|| hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}
