//! Logins at an OpenID provider: the authorization code flow with PKCE (RFC 7636, RFC 9700). The gateway keeps the state
//! of a login in memory, bound to the browser that began it, and asks the provider for the access token.

use super::{access_config::LoginConfig, session_table::random_token};
use crate::{
    net::{FetchClient, FetchLimits, FormRequest, Url, UrlTrust},
    values::{ByteSize, ConfigDuration, Secret, percent_encode, register_token, sha256},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use serde::Deserialize;
use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

/// The path to which the provider redirects the browser.
pub(super) const CALLBACK_PATH: &str = "/console/login/callback";

/// How long a person may take at the provider.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(600);

/// Maximum number of logins in progress, in total and of one address; a further one replaces the oldest.
const MAX_LOGINS: usize = 1_000;
const MAX_LOGINS_PER_ADDRESS: usize = 20;

const FETCH_LIMITS: FetchLimits =
    FetchLimits { size: ByteSize::from_bytes(256 << 10), time: ConfigDuration::from_secs(10) };

/// The login at one provider.
pub(super) struct ProviderLogin {
    config: LoginConfig,
    client_secret: Option<Secret>,
    redirect_uri: String,
    client: FetchClient,
    logins: Mutex<HashMap<String, StartedLogin>>,
}

struct StartedLogin {
    verifier: Secret,
    address: IpAddr,
    started_at: Instant,
}

/// A login that begins.
pub(super) struct LoginRedirect {
    /// Where the browser goes.
    pub(super) url: String,
    /// What the browser keeps until it comes back.
    pub(super) state: String,
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
        Ok(Self { config, client_secret, redirect_uri, client, logins: Mutex::default() })
    }

    /// Begins a login.
    ///
    /// # Errors
    /// Why the provider cannot be used, for the log.
    pub(super) async fn begin(&self, address: IpAddr) -> Result<LoginRedirect, String> {
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
        self.remember(state.clone(), StartedLogin { verifier, address, started_at: Instant::now() });
        Ok(LoginRedirect { url: url.into(), state })
    }

    fn remember(&self, state: String, login: StartedLogin) {
        let mut logins = self.logins.lock();
        logins.retain(|_, login| login.started_at.elapsed() < LOGIN_TIMEOUT);
        let of_address = logins.values().filter(|other| other.address == login.address).count();
        let is_full = logins.len() >= MAX_LOGINS;
        if of_address >= MAX_LOGINS_PER_ADDRESS || is_full {
            let is_candidate =
                |other: &StartedLogin| of_address < MAX_LOGINS_PER_ADDRESS || other.address == login.address;
            let candidates = logins.iter().filter(|(_, other)| is_candidate(other));
            let oldest = candidates.min_by_key(|(_, other)| other.started_at).map(|(state, _)| state.clone());
            oldest.into_iter().for_each(|state| drop(logins.remove(&state)));
        }
        logins.insert(state, login);
    }

    /// Completes a login: returns the access token for the code in `answer`. `state` is what the browser kept.
    ///
    /// # Errors
    /// Why there is no token, for the log.
    pub(super) async fn complete(&self, answer: ProviderAnswer, state: Option<&str>) -> Result<Secret, String> {
        let returned = answer.state.as_deref().ok_or("the answer has no state")?;
        if state != Some(returned) {
            return Err("the answer belongs to a login of another browser".to_owned());
        }
        let login = self.logins.lock().remove(returned);
        let login = login.filter(|login| login.started_at.elapsed() < LOGIN_TIMEOUT);
        let login = login.ok_or("the login took too long, or was answered before")?;
        if answer.iss.is_some_and(|issuer| issuer != self.config.issuer) {
            return Err("the answer comes from another issuer".to_owned());
        }
        if let Some(error) = answer.error {
            // Codes of RFC 6749 §4.1.2.1; the description of the provider is not repeated.
            return Err(format!("the provider refused it: {}", error.chars().take(64).collect::<String>()));
        }
        let code = answer.code.ok_or("the answer has no code")?;
        self.fetch_token(&code, &login.verifier).await
    }

    async fn fetch_token(&self, code: &str, verifier: &Secret) -> Result<Secret, String> {
        let metadata = self.metadata().await?;
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &*self.redirect_uri),
            ("client_id", &*self.config.client_id),
            ("code_verifier", verifier.expose()),
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

    async fn metadata(&self) -> Result<ProviderMetadata, String> {
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
