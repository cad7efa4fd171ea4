//! Logins at an OpenID provider: the authorization code flow with PKCE (RFC 7636, RFC 9700). The browser that begins a
//! login keeps its state in a cookie, so that logins that nobody completes cost the gateway nothing. A code works once,
//! because the provider says so.

use super::{access_config::LoginConfig, session_table::random_token};
use crate::{
    net::{FetchClient, FetchLimits, FormRequest, Url, UrlTrust},
    values::{ByteSize, ConfigDuration, Secret, percent_encode, register_token, sha256},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::Deserialize;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use subtle::ConstantTimeEq as _;
use tokio::sync::Mutex;

/// The path to which the provider redirects the browser.
pub(super) const CALLBACK_PATH: &str = "/console/login/callback";

/// How long the provider's discovery document is used.
const METADATA_TTL: Duration = Duration::from_secs(300);

const FETCH_LIMITS: FetchLimits =
    FetchLimits { size: ByteSize::from_bytes(256 << 10), time: ConfigDuration::from_secs(10) };

/// The login at one provider.
pub(super) struct ProviderLogin {
    config: LoginConfig,
    client_secret: Option<Secret>,
    redirect_uri: String,
    client: FetchClient,
    /// Locked while the document is fetched, so that logins at once fetch it once.
    metadata: Mutex<Option<(Instant, Arc<ProviderMetadata>)>>,
}

/// A login that begins.
pub(super) struct LoginRedirect {
    /// Where the browser goes.
    pub(super) url: String,
    /// What the browser keeps until it comes back: the state, and the PKCE verifier.
    pub(super) kept: String,
}

/// What the provider appended to the redirect URI (RFC 6749 §4.1.2, RFC 9207).
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProviderAnswer {
    code: Option<String>,
    state: Option<String>,
    iss: Option<String>,
    error: Option<String>,
}

/// The endpoints of the provider (OpenID Connect Discovery 1.0 §3).
#[derive(Deserialize)]
struct ProviderMetadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
}

#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    #[serde(default)]
    token_type: String,
}

impl ProviderLogin {
    /// Creates the login. `url` is that of the admin listener.
    ///
    /// # Errors
    /// The client secret cannot be loaded.
    pub(super) fn build(config: LoginConfig, url: &str, client: FetchClient) -> Result<Self, String> {
        let secret = config.client_secret.as_ref().map(|secret| secret.load());
        let client_secret = secret.transpose().map_err(|why| format!("access.login.client_secret: {why}"))?;
        let redirect_uri = format!("{url}{CALLBACK_PATH}");
        Ok(Self { config, client_secret, redirect_uri, client, metadata: Mutex::default() })
    }

    /// Begins a login.
    ///
    /// # Errors
    /// Why the provider cannot be used, for the log.
    pub(super) async fn begin(&self) -> Result<LoginRedirect, String> {
        let metadata = self.metadata().await?;
        let mut url = Url::parse(&metadata.authorization_endpoint)
            .map_err(|_| "its authorization_endpoint is not a URL".to_owned())?;
        let (state, verifier) = (random_token().expose().to_owned(), random_token());
        let challenge = URL_SAFE_NO_PAD.encode(sha256(verifier.expose().as_bytes()));
        let scope = self.config.scopes.join(" ");
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.config.client_id)
            .append_pair("redirect_uri", &self.redirect_uri)
            .append_pair("scope", &scope)
            .append_pair("state", &state)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256");
        if let Some(resource) = &self.config.resource {
            url.query_pairs_mut().append_pair("resource", resource);
        }
        Ok(LoginRedirect { url: url.into(), kept: format!("{state}.{}", verifier.expose()) })
    }

    /// Completes a login: returns the access token for the code in `answer`. `kept` is what the browser kept.
    ///
    /// # Errors
    /// Why there is no token, for the log.
    pub(super) async fn complete(&self, answer: ProviderAnswer, kept: Option<&str>) -> Result<Secret, String> {
        let returned = answer.state.as_deref().ok_or("the answer has no state")?;
        let (state, verifier) = kept.and_then(|kept| kept.split_once('.')).unwrap_or_default();
        let is_own: bool = state.as_bytes().ct_eq(returned.as_bytes()).into();
        if !is_own || state.is_empty() {
            return Err("the answer belongs to a login of another browser".to_owned());
        }
        if answer.iss.is_some_and(|issuer| issuer != self.config.issuer) {
            return Err("the answer comes from another issuer".to_owned());
        }
        if let Some(error) = answer.error {
            // Codes of RFC 6749 §4.1.2.1; the description of the provider is not repeated.
            return Err(format!("the provider refused it: {}", error.chars().take(64).collect::<String>()));
        }
        let code = answer.code.ok_or("the answer has no code")?;
        self.fetch_token(&code, verifier).await
    }

    async fn fetch_token(&self, code: &str, verifier: &str) -> Result<Secret, String> {
        let metadata = self.metadata().await?;
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &*self.redirect_uri),
            ("client_id", &*self.config.client_id),
            ("code_verifier", verifier),
        ];
        fields.extend(self.config.resource.as_deref().map(|resource| ("resource", resource)));
        // RFC 6749 §2.3.1: both parts are form-encoded.
        let user = percent_encode(&self.config.client_id).to_string();
        let password =
            self.client_secret.as_ref().map(|secret| Secret::new(percent_encode(secret.expose()).to_string()));
        let basic = password.as_ref().map(|password| (&*user, password));
        let form = FormRequest { fields: &fields, basic };
        let reply = self.client.post(&metadata.token_endpoint, &form, FETCH_LIMITS).await;
        let reply = reply.map_err(|why| format!("its token endpoint failed: {why}"))?;
        if reply.status != 200 {
            return Err(format!("its token endpoint responded with status {}", reply.status));
        }
        let token: TokenResponse = serde_json::from_slice(&reply.body)
            .map_err(|_| "its token endpoint did not respond with a token".to_owned())?;
        if !token.token_type.is_empty() && !token.token_type.eq_ignore_ascii_case("bearer") {
            return Err("its token is no bearer token".to_owned());
        }
        register_token(&token.access_token);
        Ok(Secret::new(token.access_token))
    }

    async fn metadata(&self) -> Result<Arc<ProviderMetadata>, String> {
        let mut known = self.metadata.lock().await;
        if let Some((fetched_at, metadata)) = &*known
            && fetched_at.elapsed() < METADATA_TTL
        {
            return Ok(Arc::clone(metadata));
        }
        let metadata = Arc::new(self.fetch_metadata().await?);
        *known = Some((Instant::now(), Arc::clone(&metadata)));
        Ok(metadata)
    }

    async fn fetch_metadata(&self) -> Result<ProviderMetadata, String> {
        let issuer = self.config.issuer.trim_end_matches('/');
        let url = format!("{issuer}/.well-known/openid-configuration");
        let metadata: ProviderMetadata = self
            .client
            .fetch_json(&url, UrlTrust::Operator, FETCH_LIMITS)
            .await
            .map_err(|why| format!("its discovery document cannot be read: {why}"))?;
        // OpenID Connect Discovery 1.0 §4.3.
        if metadata.issuer != self.config.issuer {
            return Err("its discovery document names another issuer".to_owned());
        }
        Ok(metadata)
    }
}
