//! Tokens by OAuth 2.0's client credentials: asked for when there is none, kept until shortly before they end.

use super::credential::{ClientCredentials, bearer_value};
use crate::{
    net::{Bounds, Client, FetchError, Form, Url},
    unit::{Secret, Size, Span},
};
use http::HeaderValue;
use serde::Deserialize;
use std::time::Duration;
use tokio::{sync::Mutex, time::Instant};

const BOUNDS: Bounds = Bounds { size: Size::kib(64), time: Span::secs(10) };
/// What counts where the server does not say how long a token does (RFC 6749 §5.1 only recommends it).
const UNSAID: u64 = 300;
/// A token is renewed this long before it ends, or in the last tenth of a short life.
const BEFORE: Duration = Duration::from_secs(30);
/// No token is kept for longer, whatever is said.
const LONGEST: u64 = 86_400;

/// The tokens of one client.
#[derive(Debug)]
pub(super) struct Tokens {
    client: Client,
    url: Url,
    user: String,
    secret: Secret,
    scope: Option<String>,
    held: Mutex<Option<Held>>,
}

#[derive(Debug)]
struct Held {
    value: HeaderValue,
    until: Instant,
}

/// RFC 6749 §5.1; what else stands there does not matter.
#[derive(Deserialize)]
struct Granted {
    access_token: Box<str>,
    #[serde(default)]
    token_type: Option<String>,
    #[serde(default)]
    expires_in: Option<serde_json::Value>,
}

impl Tokens {
    pub(super) fn load(from: &ClientCredentials, client: &Client) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let url = client.vet(&from.token_url).map_err(|why| problems.push(format!("token_url: {why}")));
        let secret = from.client_secret.load().map_err(|why| problems.push(format!("client_secret: {why}")));
        if from.client_id.is_empty() {
            problems.push("client_id: must be the gateway's name at the token endpoint".to_owned());
        }
        let (Ok(url), Ok(secret), true) = (url, secret, problems.is_empty()) else { return Err(problems) };
        Ok(Self {
            client: client.clone(),
            url,
            user: form_encoded(&from.client_id),
            secret: Secret::new(form_encoded(secret.expose())),
            scope: from.scope.clone(),
            held: Mutex::default(),
        })
    }

    /// A token that should count now; one that was `refused` is not given again.
    pub(super) async fn get(&self, refused: Option<&HeaderValue>) -> Result<HeaderValue, FetchError> {
        // Held while asking, so that many requests ask once.
        let mut held = self.held.lock().await;
        let usable = held.as_ref().filter(|held| held.until > Instant::now() && Some(&held.value) != refused);
        if let Some(held) = usable {
            return Ok(held.value.clone());
        }
        *held = None;
        let fresh = self.ask().await?;
        let value = fresh.value.clone();
        *held = Some(fresh);
        Ok(value)
    }

    async fn ask(&self) -> Result<Held, FetchError> {
        let mut fields = vec![("grant_type", "client_credentials")];
        fields.extend(self.scope.as_deref().map(|scope| ("scope", scope)));
        let form = Form { fields: &fields, basic: (&self.user, &self.secret) };
        let asked = Instant::now();
        let reply = self.client.post(self.url.as_str(), &form, BOUNDS).await?;
        if reply.status != 200 {
            return Err(FetchError::Status { url: self.url.to_string(), status: reply.status });
        }
        // What came is not repeated: there may be a token in it.
        let unreadable = |why: &str| FetchError::Unreadable { url: self.url.to_string(), why: why.to_owned() };
        let granted: Granted =
            serde_json::from_slice(&reply.body).map_err(|_| unreadable("is not the token response expected"))?;
        if granted.token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
            return Err(unreadable("grants a token of another kind than bearer"));
        }
        let value = bearer_value(&Secret::new(granted.access_token)).map_err(|why| unreadable(&why))?;
        let said = granted.expires_in.and_then(|said| said.as_u64().or_else(|| said.as_str()?.parse().ok()));
        let life = Duration::from_secs(said.unwrap_or(UNSAID).min(LONGEST));
        Ok(Held { value, until: asked + life.saturating_sub(BEFORE.min(life / 10)) })
    }
}

/// RFC 6749 §2.3.1: names and secrets are form-encoded before they become HTTP Basic.
fn form_encoded(text: &str) -> String {
    reqwest::Url::parse_with_params("x:/", [("", text)])
        .ok()
        .and_then(|url| url.query().and_then(|query| query.strip_prefix('=')).map(str::to_owned))
        .unwrap_or_default()
}
