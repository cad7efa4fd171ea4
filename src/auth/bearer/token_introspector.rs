//! Token introspection (RFC 7662): posts opaque tokens to the introspection endpoint, with at most one request at a
//! time for each token and a bounded number in all. Without a response the call gets 503, never 401.

use super::{
    caller_mapper::CallerMapper,
    claims::{TokenClaims, as_seconds},
    verified_token::{VerifiedToken, token_check_unavailable},
};
use crate::{
    auth::{
        authenticator::{AuthenticationFailure, InvalidCredential},
        build_context::BuildContext,
        caller::unix_now,
        config,
        revocation::{RevocationKey, TokenIdentity},
    },
    net::{FetchClient, FetchLimits, FormRequest},
    telemetry::{Event, Metrics},
    values::{ByteSize, ConfigDuration, Secret, json, shown_url},
};
use serde_json::Value;
use std::{fmt::Write, sync::Arc, time::Duration};
use tokio::sync::Semaphore;

pub(super) const REQUEST_BOUNDS: FetchLimits =
    FetchLimits { size: ByteSize::from_kib(64), time: ConfigDuration::from_secs(5) };

/// How long calls with the same token share a result, and how long a refusal is cached.
const RESULT_TTL: Duration = Duration::from_secs(5);

/// Maximum number of shared results.
const MAX_SHARED_RESULTS: u64 = 10_000;

/// Maximum number of concurrent requests, and how long a further request waits.
const MAX_CONCURRENT_REQUESTS: usize = 64;
const QUEUE_TIMEOUT: Duration = Duration::from_secs(2);

/// Result of introspection: a valid token, or the reason why the token is not valid.
type IntrospectionResult = Result<Arc<VerifiedToken>, &'static str>;

#[derive(Debug)]
pub(super) struct TokenIntrospector {
    config: config::IntrospectionConfig,
    client_id: String,
    client_secret: Secret,
    caller_mapper: CallerMapper,
    client: FetchClient,
    metrics: Arc<Metrics>,
    results: moka::future::Cache<[u8; 32], IntrospectionResult>,
    request_permits: Semaphore,
}

impl TokenIntrospector {
    pub(super) fn build(config: &config::IntrospectionConfig, context: &BuildContext<'_>) -> Result<Self, Vec<String>> {
        let services = context.services;
        let mut problems = Vec::new();
        if let Err(why) = services.client.check_url(&config.endpoint) {
            problems.push(format!("endpoint: {} {why}", shown_url(&config.endpoint)));
        }
        if config.client_id.is_empty() {
            problems.push("client_id: is empty (write the gateway's client id at the endpoint)".to_owned());
        }
        if config.leeway > ConfigDuration::from_secs(300) {
            problems.push("leeway: is out of bounds (at most 5m)".to_owned());
        }
        if config.cache_ttl > ConfigDuration::from_secs(3_600) {
            problems.push("cache_ttl: is out of bounds (at most 1h)".to_owned());
        }
        let secret = config.client_secret.load().map_err(|why| problems.push(format!("client_secret: {why}")));
        let caller_mapper = CallerMapper::build(config.label.as_deref(), &config.claims, context);
        let caller_mapper = caller_mapper.map_err(|reasons| problems.extend(reasons));
        let (Ok(secret), Ok(caller_mapper), true) = (secret, caller_mapper, problems.is_empty()) else {
            return Err(problems);
        };
        Ok(Self {
            config: config.clone(),
            client_id: form_encode(&config.client_id),
            client_secret: Secret::new(form_encode(secret.expose())),
            caller_mapper,
            client: services.client.clone(),
            metrics: Arc::clone(&services.metrics),
            results: moka::future::Cache::builder().max_capacity(MAX_SHARED_RESULTS).time_to_live(RESULT_TTL).build(),
            request_permits: Semaphore::new(MAX_CONCURRENT_REQUESTS),
        })
    }

    /// Introspects a token. A failure is returned to every call that waits for the result, and is not cached.
    pub(super) async fn introspect(
        &self,
        token: &str,
        hash: [u8; 32],
    ) -> Result<Arc<VerifiedToken>, AuthenticationFailure> {
        let mut result = self.introspect_shared(token, hash).await?;
        // The shared result may be older than `cache_ttl`: the endpoint must confirm that the token is still valid.
        if matches!(&result, Ok(verified) if verified.valid_until <= unix_now()) {
            self.results.invalidate(&hash).await;
            result = self.introspect_shared(token, hash).await?;
        }
        match result {
            Ok(verified) if unix_now() < verified.valid_until => Ok(verified),
            Ok(_) => Err(InvalidCredential::new("the token has expired").into()),
            Err(why) => Err(InvalidCredential::new(why).into()),
        }
    }

    async fn introspect_shared(
        &self,
        token: &str,
        hash: [u8; 32],
    ) -> Result<IntrospectionResult, AuthenticationFailure> {
        let result = self.results.try_get_with(hash, self.introspect_uncached(token)).await;
        result.map_err(|why: Arc<String>| token_check_unavailable(why))
    }

    async fn introspect_uncached(&self, token: &str) -> Result<IntrospectionResult, String> {
        let claims = match self.post_token(token).await {
            Ok(claims) => claims,
            Err(why) => {
                tracing::warn!(error = why, "token introspection failed (check the endpoint)");
                self.metrics.record_event(Event::IntrospectionFailed);
                return Err(why);
            }
        };
        Ok(self.verify_response(token, &claims).map(Arc::new).map_err(|invalid| invalid.reason))
    }

    async fn post_token(&self, token: &str) -> Result<TokenClaims, String> {
        let permit = tokio::time::timeout(QUEUE_TIMEOUT, self.request_permits.acquire()).await;
        let _permit = permit.map_err(|_| "too many tokens wait for introspection")?.map_err(|why| why.to_string())?;
        let form = FormRequest {
            fields: &[("token", token), ("token_type_hint", "access_token")],
            basic: Some((&self.client_id, &self.client_secret)),
        };
        let response =
            self.client.post(&self.config.endpoint, &form, REQUEST_BOUNDS).await.map_err(|why| why.to_string())?;
        // RFC 7662 §2.3: 401 concerns the gateway's credential, not the token.
        if response.status != 200 {
            return Err(format!("{}: responded with status {}", shown_url(&self.config.endpoint), response.status));
        }
        let body = json::parse(&response.body, json::MAX_DEPTH)
            .map_err(|_| format!("{}: response is not JSON", shown_url(&self.config.endpoint)))?;
        match body.get("active") {
            Some(Value::Bool(_)) => Ok(TokenClaims(body)),
            _ => Err(format!("{}: response has no boolean 'active'", shown_url(&self.config.endpoint))),
        }
    }

    /// Returns the issuer of tokens whose response names none: the configured one, or the endpoint.
    fn issuer(&self) -> &str {
        self.config.issuer.as_deref().unwrap_or(&self.config.endpoint)
    }

    fn verify_response(&self, token: &str, claims: &TokenClaims) -> Result<VerifiedToken, InvalidCredential> {
        if claims.get("active") != Some(&Value::Bool(true)) {
            return Err(InvalidCredential::new("the token is not active"));
        }
        let max_valid_until = unix_now().saturating_add(as_seconds(self.config.cache_ttl).max(1));
        let valid_until = claims
            .check_lifetime(unix_now(), as_seconds(self.config.leeway))?
            .map_or(max_valid_until, |expires_at| expires_at.min(max_valid_until));
        if let (Some(accepted), Some(iss)) = (&self.config.issuer, claims.get("iss"))
            && iss.as_str() != Some(accepted)
        {
            return Err(InvalidCredential::new("the token's issuer is not accepted"));
        }
        if !self.config.audience.is_empty() {
            claims.check_audience(&self.config.audience)?;
        }
        Ok(VerifiedToken {
            caller: self.caller_mapper.caller_from_claims(claims)?,
            valid_until,
            bound_certificate: claims.bound_certificate()?,
            identity: TokenIdentity::new(RevocationKey::of_token(token), claims.names(self.issuer())),
        })
    }
}

/// Form-encodes a client id or secret before Basic authentication (RFC 6749 §2.3.1).
pub(super) fn form_encode(text: &str) -> String {
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
