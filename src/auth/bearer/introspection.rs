//! Tokens that mean something only to their issuer: it is asked (RFC 7662), once at a time for one token and for
//! not too many at once. No answer is 503, never 401.

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

/// How long an answer is shared between calls with one token, and a refusal remembered.
const SHARED: Duration = Duration::from_secs(5);

/// Answers remembered at most for that.
const MOST: u64 = 10_000;

/// Questions under way at once, and how long one more waits.
const AT_ONCE: usize = 64;
const WAIT: Duration = Duration::from_secs(2);

/// What the endpoint said: a token that counts, or why it does not.
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
            problems.push("client_id: must be the gateway's name at the endpoint".to_owned());
        }
        if config.leeway > Span::secs(300) {
            problems.push("leeway: must be at most 5m".to_owned());
        }
        if config.cache_for > Span::secs(3_600) {
            problems.push("cache_for: must be at most 1h".to_owned());
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

    /// A failure is told to all who wait for it and then forgotten.
    pub(super) async fn ask(&self, token: &str, hash: [u8; 32]) -> Result<Arc<Verified>, Trouble> {
        let mut answer = self.shared(token, hash).await?;
        // The shared answer may outlive `cache_for`: only the endpoint can say that the token no longer counts.
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
                tracing::warn!(why, "a token cannot be introspected");
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
        // RFC 7662 §2.3: 401 is about the gateway's own credential, not about the token.
        if reply.status != 200 {
            return Err(format!("{}: answered {}", self.config.endpoint, reply.status));
        }
        let Strict(answer) = serde_json::from_slice(&reply.body)
            .map_err(|_| format!("{}: did not answer JSON", self.config.endpoint))?;
        match answer.get("active") {
            Some(Value::Bool(_)) => Ok(Claims(answer)),
            _ => Err(format!("{}: did not say whether the token is active", self.config.endpoint)),
        }
    }

    fn understand(&self, claims: &Claims) -> Result<Verified, Bad> {
        if claims.get("active") != Some(&Value::Bool(true)) {
            return Err(Bad::new("the token is not active"));
        }
        let most = now().saturating_add(seconds(self.config.cache_for).max(1));
        let until = claims.lifetime(now(), seconds(self.config.leeway))?.map_or(most, |until| until.min(most));
        if let (Some(ours), Some(iss)) = (&self.config.issuer, claims.get("iss"))
            && iss.as_str() != Some(ours)
        {
            return Err(Bad::new("the token's issuer is not known here"));
        }
        if !self.config.audience.is_empty() {
            claims.meant_for(&self.config.audience)?;
        }
        Ok(Verified { caller: self.callers.read(claims)?, until, bound: claims.bound()? })
    }
}

/// RFC 6749 §2.3.1: user and password are form-encoded before they are put together.
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
