//! Access tokens by OAuth 2.0 client credentials: requested when needed, cached until shortly before they expire.

use super::source_credential::{ClientCredentials, bearer_value};
use crate::{
    net::{FetchClient, FetchError, FetchLimits, FormRequest, Url},
    values::{ByteSize, ConfigDuration, Secret, register_token},
};
use http::HeaderValue;
use serde::Deserialize;
use std::time::Duration;
use tokio::{sync::Mutex, time::Instant};

const TOKEN_LIMITS: FetchLimits = FetchLimits { size: ByteSize::from_kib(64), time: ConfigDuration::from_secs(10) };
/// Lifetime in seconds if the server states none (RFC 6749 §5.1 only recommends to state it).
const DEFAULT_LIFETIME: u64 = 300;
/// How long before its expiry a token is renewed; at most a tenth of its lifetime.
const RENEW_BEFORE: Duration = Duration::from_secs(30);
/// Maximum lifetime in seconds, regardless of the value that the server states.
const MAX_LIFETIME: u64 = 86_400;

/// Token cache of one OAuth client.
#[derive(Debug)]
pub(super) struct TokenCache {
    client: FetchClient,
    url: Url,
    client_id: String,
    secret: Secret,
    scope: Option<String>,
    cached: Mutex<Option<CachedToken>>,
}

#[derive(Debug)]
struct CachedToken {
    value: HeaderValue,
    until: Instant,
}

/// Token response (RFC 6749 §5.1); other members are ignored.
#[derive(Deserialize)]
struct TokenResponse {
    access_token: Box<str>,
    #[serde(default)]
    token_type: Option<String>,
    #[serde(default)]
    expires_in: Option<serde_json::Value>,
}

impl TokenCache {
    pub(super) fn load(credentials: &ClientCredentials, client: &FetchClient) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let url =
            client.check_url(&credentials.token_url).map_err(|error| problems.push(format!("token_url: {error}")));
        let secret = credentials.client_secret.load().map_err(|error| problems.push(format!("client_secret: {error}")));
        if credentials.client_id.is_empty() {
            problems.push("client_id: is empty (the gateway's client id at the token endpoint)".to_owned());
        }
        let (Ok(url), Ok(secret), true) = (url, secret, problems.is_empty()) else { return Err(problems) };
        Ok(Self {
            client: client.clone(),
            url,
            client_id: form_encoded(&credentials.client_id),
            secret: Secret::new(form_encoded(secret.expose())),
            scope: credentials.scope.clone(),
            cached: Mutex::default(),
        })
    }

    /// Returns a valid token; requests a new one if the cached one expired or equals `refused`.
    pub(super) async fn get(&self, refused: Option<&HeaderValue>) -> Result<HeaderValue, FetchError> {
        // Locked during the request, so that concurrent callers request one token.
        let mut cached = self.cached.lock().await;
        let usable = cached.as_ref().filter(|cached| cached.until > Instant::now() && Some(&cached.value) != refused);
        if let Some(cached) = usable {
            return Ok(cached.value.clone());
        }
        *cached = None;
        let fresh = self.request_token().await?;
        let value = fresh.value.clone();
        *cached = Some(fresh);
        Ok(value)
    }

    async fn request_token(&self) -> Result<CachedToken, FetchError> {
        let mut fields = vec![("grant_type", "client_credentials")];
        fields.extend(self.scope.as_deref().map(|scope| ("scope", scope)));
        let form = FormRequest { fields: &fields, basic: Some((&self.client_id, &self.secret)) };
        let requested_at = Instant::now();
        let reply = self.client.post(self.url.as_str(), &form, TOKEN_LIMITS).await?;
        if reply.status != 200 {
            return Err(FetchError::Status { url: self.url.to_string(), status: reply.status });
        }
        // Errors do not repeat the response, because it may hold a token.
        let unreadable = |reason: &str| FetchError::Invalid { url: self.url.to_string(), reason: reason.to_owned() };
        let granted: TokenResponse =
            serde_json::from_slice(&reply.body).map_err(|_| unreadable("is not the expected token response"))?;
        if granted.token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
            return Err(unreadable("has a token_type other than bearer"));
        }
        let token = Secret::new(granted.access_token);
        register_token(token.expose());
        let value = bearer_value(&token).map_err(|reason| unreadable(&reason))?;
        let expires_in =
            granted.expires_in.and_then(|expires_in| expires_in.as_u64().or_else(|| expires_in.as_str()?.parse().ok()));
        let lifetime = Duration::from_secs(expires_in.unwrap_or(DEFAULT_LIFETIME).min(MAX_LIFETIME));
        Ok(CachedToken { value, until: requested_at + lifetime.saturating_sub(RENEW_BEFORE.min(lifetime / 10)) })
    }
}

/// Form-encodes a client id or secret for HTTP Basic (RFC 6749 §2.3.1).
fn form_encoded(text: &str) -> String {
    reqwest::Url::parse_with_params("x:/", [("", text)])
        .ok()
        .and_then(|url| url.query().and_then(|query| query.strip_prefix('=')).map(str::to_owned))
        .unwrap_or_default()
}
