//! Telling of a task's end by a webhook: a POST that is signed as Standard Webhooks has it, tried again with growing
//! pauses for a bounded time. The address is a caller's: private ones are refused, and no redirect is followed.

use crate::{
    fault::{Code, Fault, Result},
    net::Client,
    unit::{Secret, SecretRef, Span},
};
use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderValue, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use time::OffsetDateTime;

/// The longest address.
const LONGEST: usize = 2_000;
/// The pause after the first attempt that failed, and the longest.
const SOONEST: Duration = Duration::from_secs(1);
const LATEST: Duration = Duration::from_secs(3_600);

/// Telling of tasks' ends.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Callbacks")]
#[serde(deny_unknown_fields)]
pub struct Callbacks {
    /// The key that signs, at least 16 bytes; `whsec_` and Base64 as Standard Webhooks writes it, or any text.
    pub secret: SecretRef,
    /// How long one attempt may take; 1s to 1m, default 10s.
    #[serde(default = "timeout")]
    pub timeout: Span,
    /// How long after a task's end it is tried; 1s to 7d, default 1h. The task is kept for at least as long.
    #[serde(default = "give_up")]
    pub give_up: Span,
}

fn timeout() -> Span {
    Span::secs(10)
}

fn give_up() -> Span {
    Span::secs(3_600)
}

impl Callbacks {
    /// Every value that cannot be used, by its path within this section.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(Span::secs(1)..=Span::secs(60)).contains(&self.timeout) {
            problems.push(format!("timeout: must be 1s to 1m, not {}", self.timeout));
        }
        if !(Span::secs(1)..=Span::secs(7 * 86_400)).contains(&self.give_up) {
            problems.push(format!("give_up: must be 1s to 7d, not {}", self.give_up));
        }
        problems
    }
}

/// Tells of tasks' ends.
pub(super) struct Teller {
    pub(super) config: Callbacks,
    key: hmac::Key,
    client: Client,
}

impl Teller {
    /// Reads the secret.
    ///
    /// # Errors
    /// The secret cannot be used.
    pub(super) fn new(config: &Callbacks, client: Client) -> std::result::Result<Self, Vec<String>> {
        let refuse = |why: String| vec![format!("callbacks.secret: {why}")];
        let secret = config.secret.load().map_err(refuse)?;
        let key = key(&secret).ok_or_else(|| refuse("must be at least 16 bytes (whsec_ and Base64)".to_owned()))?;
        Ok(Self { config: config.clone(), key, client })
    }

    /// Whether a caller may name this address.
    ///
    /// # Errors
    /// `InvalidInput`, saying what would be right.
    pub(super) fn admit(&self, url: &str) -> Result<()> {
        let refuse = |why: String| Err(Fault::new(Code::InvalidInput, format!("the callback URL {why}")));
        if url.len() > LONGEST {
            return refuse(format!("is too long (at most {LONGEST} bytes)"));
        }
        self.client.vet_told(url).or_else(refuse)
    }

    /// Tries once.
    ///
    /// # Errors
    /// For the log: why it did not work.
    pub(super) async fn tell(&self, url: &str, id: &str, body: Vec<u8>) -> std::result::Result<(), String> {
        let at = OffsetDateTime::now_utc().unix_timestamp().to_string();
        let signed = [format!("{id}.{at}.").as_bytes(), &body].concat();
        let signature = format!("v1,{}", STANDARD.encode(hmac::sign(&self.key, &signed)));
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in [("webhook-id", id), ("webhook-timestamp", &at), ("webhook-signature", &signature)] {
            headers.insert(name, HeaderValue::from_str(value).map_err(|why| why.to_string())?);
        }
        match self.client.deliver(url, headers, body, self.config.timeout).await {
            Ok(200..=299) => Ok(()),
            Ok(status) => Err(format!("it answered {status}")),
            Err(why) => Err(why.to_string()),
        }
    }

    /// When the next attempt is due, after `tries` that failed; none where time is up.
    pub(super) fn next(&self, tries: u32, ended: OffsetDateTime) -> Option<OffsetDateTime> {
        let wait = SOONEST.saturating_mul(1 << tries.min(12)).min(LATEST);
        // Between half of it and all of it. A random id is random enough for this.
        let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
        let wait = wait.mul_f64(0.5 + 0.5 * f64::from((high >> 48) as u16) / f64::from(u16::MAX));
        let due = OffsetDateTime::now_utc() + wait;
        Some(due).filter(|due| *due <= ended + self.config.give_up.get())
    }
}

fn key(secret: &Secret) -> Option<hmac::Key> {
    let text = secret.expose();
    let bytes = match text.strip_prefix("whsec_") {
        Some(encoded) => STANDARD.decode(encoded).ok()?,
        None => text.as_bytes().to_vec(),
    };
    (bytes.len() >= 16).then(|| hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}
