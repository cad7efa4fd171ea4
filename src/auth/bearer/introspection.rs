//! Token introspection (RFC 7662): asks the issuer about opaque tokens, once at a time per token and with bounded
//! concurrency. A missing response is 503, never 401.

use super::{
    Trouble, Verified, cannot_tell,
    claims::{CallerReader, Claims},
    issuer::seconds,
    token::Strict,
};
use crate::{
    auth::{
        Services,
        access::Access,
        caller::{Bad, now},
        config,
    },
    net::{Bounds, Client, Form},
    telemetry::{Event, Metrics},
    unit::{Secret, Size, Span},
};
use serde_json::Value;
use std::{fmt::Write, sync::Arc, time::Duration};
use tokio::sync::Semaphore;

const BOUNDS: Bounds = Bounds { size: Size::kib(64), time: Span::secs(5) };

/// How long calls with one token share a result, and how long a refusal is cached.
const SHARED: Duration = Duration::from_secs(5);

/// Maximum number of shared results.
const MOST: u64 = 10_000;

/// Maximum number of concurrent requests, and how long another one waits.
const AT_ONCE: usize = 64;
const WAIT: Duration = Duration::from_secs(2);

/// Result of introspection: a valid token, or the reason why the token is not valid.
type Answer = Result<Arc<Verified>, &'static str>;

#[derive(Debug)]
pub(super) struct Introspector {
    config: config::Introspection,
    user: String,
    secret: Secret,
    callers: CallerReader,
    client: Client,
    metrics: Arc<Metrics>,
    answers: moka::future::Cache<[u8; 32], Answer>,
    turns: Semaphore,
}

impl Introspector {
    pub(super) fn build(
        config: &config::Introspection,
        access: &Arc<Access>,
        services: &Services,
    ) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        if let Err(why) = services.client.vet(&config.endpoint) {
            problems.push(format!("endpoint: {} {why}", config.endpoint));
        }
        if config.client_id.is_empty() {
            problems.push("client_id: is empty (write the gateway's client id at the endpoint)".to_owned());
        }
        if config.leeway > Span::secs(300) {
            problems.push("leeway: is out of bounds (at most 5m)".to_owned());
        }
        if config.cache_ttl > Span::secs(3_600) {
            problems.push("cache_for: is out of bounds (at most 1h)".to_owned());
        }
        let secret = config.client_secret.load().map_err(|why| problems.push(format!("client_secret: {why}")));
        let callers = CallerReader::build(config.label.as_deref(), &config.claims, access);
        let callers = callers.map_err(|whys| problems.extend(whys));
        let (Ok(secret), Ok(callers), true) = (secret, callers, problems.is_empty()) else {
            return Err(problems);
        };
        Ok(Self {
            config: config.clone(),
            user: form_encoded(&config.client_id),
            secret: Secret::new(form_encoded(secret.expose())),
            callers,
            client: services.client.clone(),
            metrics: Arc::clone(&services.metrics),
            answers: moka::future::Cache::builder().max_capacity(MOST).time_to_live(SHARED).build(),
            turns: Semaphore::new(AT_ONCE),
        })
    }

    /// Introspects a token. A failure is returned to all calls that wait for it, and not cached.
    pub(super) async fn ask(&self, token: &str, hash: [u8; 32]) -> Result<Arc<Verified>, Trouble> {
        let mut answer = self.shared(token, hash).await?;
        // The shared result may outlive `cache_for`: the endpoint must confirm that the token is still valid.
        if matches!(&answer, Ok(verified) if verified.until <= now()) {
            self.answers.invalidate(&hash).await;
            answer = self.shared(token, hash).await?;
        }
        match answer {
            Ok(verified) if now() < verified.until => Ok(verified),
            Ok(_) => Err(Bad::new("the token has expired").into()),
            Err(why) => Err(Bad::new(why).into()),
        }
    }

    async fn shared(&self, token: &str, hash: [u8; 32]) -> Result<Answer, Trouble> {
        let answer = self.answers.try_get_with(hash, self.question(token)).await;
        answer.map_err(|why: Arc<String>| cannot_tell(why))
    }

    async fn question(&self, token: &str) -> Result<Answer, String> {
        let claims = match self.post(token).await {
            Ok(claims) => claims,
            Err(why) => {
                tracing::warn!(error = why, "token introspection failed (check the endpoint)");
                self.metrics.count(Event::IntrospectionFailed);
                return Err(why);
            }
        };
        Ok(self.understand(&claims).map(Arc::new).map_err(|bad| bad.why))
    }

    async fn post(&self, token: &str) -> Result<Claims, String> {
        let turn = tokio::time::timeout(WAIT, self.turns.acquire()).await;
        let _turn = turn.map_err(|_| "too many tokens wait for introspection")?.map_err(|why| why.to_string())?;
        let form = Form {
            fields: &[("token", token), ("token_type_hint", "access_token")],
            basic: (&self.user, &self.secret),
        };
        let reply = self.client.post(&self.config.endpoint, &form, BOUNDS).await.map_err(|why| why.to_string())?;
        // RFC 7662 §2.3: 401 concerns the gateway's credential, not the token.
        if reply.status != 200 {
            return Err(format!("{}: responded with status {}", self.config.endpoint, reply.status));
        }
        let Strict(answer) = serde_json::from_slice(&reply.body)
            .map_err(|_| format!("{}: response is not JSON", self.config.endpoint))?;
        match answer.get("active") {
            Some(Value::Bool(_)) => Ok(Claims(answer)),
            _ => Err(format!("{}: response has no boolean 'active'", self.config.endpoint)),
        }
    }

    fn understand(&self, claims: &Claims) -> Result<Verified, Bad> {
        if claims.get("active") != Some(&Value::Bool(true)) {
            return Err(Bad::new("the token is not active"));
        }
        let most = now().saturating_add(seconds(self.config.cache_ttl).max(1));
        let until = claims.lifetime(now(), seconds(self.config.leeway))?.map_or(most, |until| until.min(most));
        if let (Some(ours), Some(iss)) = (&self.config.issuer, claims.get("iss"))
            && iss.as_str() != Some(ours)
        {
            return Err(Bad::new("the token's issuer is not accepted"));
        }
        if !self.config.audience.is_empty() {
            claims.meant_for(&self.config.audience)?;
        }
        Ok(Verified { caller: self.callers.read(claims)?, until, bound: claims.bound()? })
    }
}

/// Form-encodes a client id or secret before Basic authentication (RFC 6749 §2.3.1).
fn form_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => encoded.push(char::from(byte)),
            b' ' => encoded.push('+'),
            // Writing to a String cannot fail.
            _ => _ = write!(encoded, "%{byte:02X}"),
        }
        encoded
    })
}
