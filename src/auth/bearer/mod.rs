//! Authentication by bearer token (RFC 6750): verifies JWTs of the configured issuers, and introspects other tokens. A
//! verified token is cached by its hash; its lifetime and its certificate binding are checked for every call.

mod claims;
mod introspection;
mod jwks;
mod jwt_parser;
mod jwt_validation;
mod verification_key;

use super::{
    AuthServices,
    caller::{AuthenticationResult, Caller, InvalidCredential, PresentedCredentials, unix_now},
    config,
    grants::GrantIndex,
};
use crate::{
    fault::{Fault, FaultCode},
    values::sha256,
};
use http::{HeaderMap, header};
use introspection::TokenIntrospector;
use jwt_validation::TokenIssuer;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

/// Maximum length of a token; longer ones are refused before they are hashed.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// `Retry-After` for callers while an issuer is unreachable.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// A verified token.
#[derive(Debug)]
pub(super) struct VerifiedToken {
    caller: Arc<Caller>,
    /// First second at which the token must be verified again, or is no longer valid.
    valid_until: i64,
    /// Fingerprint of the certificate that the token is bound to (RFC 8705 §3).
    bound_certificate: Option<[u8; 32]>,
}

/// Why a token was not verified.
#[derive(Debug)]
pub(super) enum TokenError {
    Invalid(InvalidCredential),
    Unavailable(Fault),
}

impl From<InvalidCredential> for TokenError {
    fn from(invalid: InvalidCredential) -> Self {
        Self::Invalid(invalid)
    }
}

impl From<TokenError> for AuthenticationResult {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Invalid(invalid) => Self::Invalid(invalid),
            TokenError::Unavailable(fault) => Self::Unavailable(fault),
        }
    }
}

/// Returns the error for a check that failed technically: 503, because the token may be valid.
#[cold]
fn token_check_unavailable(detail: impl std::fmt::Display) -> TokenError {
    let fault = Fault::new(FaultCode::Overloaded, "The token cannot be checked at the moment");
    TokenError::Unavailable(fault.with_detail(detail).with_retry_after(RETRY_AFTER))
}

/// Verifies bearer tokens and caches the results.
#[derive(Debug)]
pub(super) struct BearerAuthenticator {
    issuers: Vec<TokenIssuer>,
    introspector: Option<TokenIntrospector>,
    token_cache: moka::sync::Cache<[u8; 32], Arc<VerifiedToken>>,
    max_cache_seconds: i64,
}

impl BearerAuthenticator {
    pub(super) fn build(
        config: &config::BearerConfig,
        grants: &Arc<GrantIndex>,
        services: &AuthServices,
        previous: Option<&Self>,
    ) -> Result<Self, Vec<String>> {
        let mut problems = config_problems(config);
        let mut issuers = Vec::with_capacity(config.issuers.len());
        for (at, settings) in config.issuers.iter().enumerate() {
            let previous_issuer =
                previous.and_then(|bearer| bearer.issuers.iter().find(|issuer| issuer.has_name(&settings.issuer)));
            match TokenIssuer::build(settings, grants, services, previous_issuer) {
                Ok(issuer) => issuers.push(issuer),
                Err(reasons) => problems.extend(reasons.into_iter().map(|why| format!("bearer.issuers[{at}].{why}"))),
            }
        }
        let introspector =
            config.introspection.as_ref().map(|settings| TokenIntrospector::build(settings, grants, services));
        let introspector = introspector.transpose().map_err(|reasons| {
            problems.extend(reasons.into_iter().map(|why| format!("bearer.introspection.{why}")));
        });
        let (Ok(introspector), true) = (introspector, problems.is_empty()) else {
            return Err(problems);
        };
        let cache_ttl = config.token_cache_ttl.get();
        let token_cache =
            moka::sync::Cache::builder().max_capacity(config.max_cached_tokens).time_to_live(cache_ttl).build();
        Ok(Self { issuers, introspector, token_cache, max_cache_seconds: cache_ttl.as_secs().try_into().unwrap_or(0) })
    }

    /// Starts background fetches of issuers' keys that are due, so that calls do not wait for them.
    pub(super) fn tick(&self) {
        self.issuers.iter().for_each(TokenIssuer::tick);
    }

    /// Checks a token without I/O and without allocation; `None` if the token is not cached.
    pub(super) fn authenticate_cached(&self, presented: &PresentedCredentials<'_>) -> Option<AuthenticationResult> {
        let token = match bearer_token(presented.headers) {
            Ok(Some(token)) => token,
            Ok(None) => return Some(AuthenticationResult::NotPresented),
            Err(invalid) => return Some(AuthenticationResult::Invalid(invalid)),
        };
        let verified =
            self.token_cache.get(&sha256(token.as_bytes())).filter(|verified| unix_now() < verified.valid_until)?;
        Some(check_certificate_binding(&verified, presented))
    }

    /// Checks a token, by its signature or by introspection if it is not cached.
    pub(super) async fn authenticate(&self, presented: &PresentedCredentials<'_>) -> AuthenticationResult {
        if let Some(result) = self.authenticate_cached(presented) {
            return result;
        }
        let Ok(Some(token)) = bearer_token(presented.headers) else {
            return AuthenticationResult::NotPresented;
        };
        let hash = sha256(token.as_bytes());
        let verified = match jwt_parser::is_jwt(token) {
            true => self.verify_jwt(token).await,
            false => self.introspect(token, hash).await,
        };
        match verified {
            Ok(verified) => {
                self.token_cache.insert(hash, Arc::clone(&verified));
                check_certificate_binding(&verified, presented)
            }
            Err(error) => error.into(),
        }
    }

    async fn verify_jwt(&self, token: &str) -> Result<Arc<VerifiedToken>, TokenError> {
        let jws = jwt_parser::SignedJwt::parse(token)?;
        let issuer = jws.claims.text("iss").and_then(|name| self.issuers.iter().find(|issuer| issuer.has_name(name)));
        let issuer = issuer.ok_or_else(|| InvalidCredential::new("the token's issuer is not accepted"))?;
        let mut verified = issuer.verify(&jws).await?;
        verified.valid_until = verified.valid_until.min(unix_now() + self.max_cache_seconds);
        Ok(Arc::new(verified))
    }

    async fn introspect(&self, token: &str, hash: [u8; 32]) -> Result<Arc<VerifiedToken>, TokenError> {
        match &self.introspector {
            Some(introspector) => introspector.introspect(token, hash).await,
            None => Err(InvalidCredential::new("the token is not a JWT").into()),
        }
    }
}

/// Returns the problems of the section; issuers and introspection report their own.
fn config_problems(config: &config::BearerConfig) -> Vec<String> {
    let mut problems = Vec::new();
    if config.issuers.is_empty() && config.introspection.is_none() {
        problems.push("bearer: accepts no token (write issuers or introspection)".to_owned());
    }
    if !(1..=10_000_000).contains(&config.max_cached_tokens) {
        problems.push("bearer.max_cached_tokens: is out of bounds (1 to 10000000)".to_owned());
    }
    if !(Duration::from_secs(1)..=Duration::from_secs(3_600)).contains(&config.token_cache_ttl.get()) {
        problems.push("bearer.token_cache_ttl: is out of bounds (1s to 1h)".to_owned());
    }
    if !has_distinct_labels(config) {
        problems.push("bearer: several sources of tokens need distinct labels, because two sources may use one name for different callers (write label for each)".to_owned());
    }
    let names: HashSet<_> = config.issuers.iter().map(|issuer| &issuer.issuer).collect();
    if names.len() < config.issuers.len() {
        problems.push("bearer.issuers: an issuer is listed twice (remove one)".to_owned());
    }
    problems
}

/// Returns whether callers of different token sources have different ids. An introspection endpoint of a listed issuer
/// is the same source as the issuer, with the same callers.
fn has_distinct_labels(config: &config::BearerConfig) -> bool {
    let mut sources: HashMap<Option<&str>, Option<&str>> = HashMap::new();
    let issuers = config.issuers.iter().map(|issuer| (Some(issuer.issuer.as_str()), issuer.label.as_deref()));
    let introspection =
        config.introspection.iter().map(|endpoint| (endpoint.issuer.as_deref(), endpoint.label.as_deref()));
    let is_consistent =
        issuers.chain(introspection).all(|(issuer, label)| *sources.entry(issuer).or_insert(label) == label);
    let labels: HashSet<_> = sources.values().collect();
    is_consistent && labels.len() == sources.len() && (sources.len() < 2 || !labels.contains(&None))
}

/// Returns the token in `Authorization`, if the scheme is `Bearer`.
fn bearer_token(headers: &HeaderMap) -> Result<Option<&str>, InvalidCredential> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(None);
    };
    let malformed = || InvalidCredential::new("the token is malformed");
    let bytes = value.as_bytes();
    let (scheme, rest) = bytes.split_at(bytes.len().min(6));
    if !scheme.eq_ignore_ascii_case(b"bearer") || rest.first().is_some_and(|next| *next != b' ') {
        return Ok(None);
    }
    let token = std::str::from_utf8(rest).map_err(|_| malformed())?.trim_matches(' ');
    // RFC 6750 §2.1: b64token. A fold has no early exit, so that the compiler vectorizes the loop.
    let is_token_byte = |b: u8| matches!(b, b'A'..=b'Z' | b'a'..=b'z' | b'-'..=b'9' | b'_' | b'~' | b'+' | b'=');
    let is_b64token = |token: &str| token.bytes().fold(true, |valid, b| valid & is_token_byte(b));
    match !token.is_empty() && token.len() <= MAX_TOKEN_BYTES && is_b64token(token) {
        true => Ok(Some(token)),
        false => Err(malformed()),
    }
}

/// Checks the certificate binding (RFC 8705 §3): a bound token is valid only on a connection with its certificate.
fn check_certificate_binding(verified: &VerifiedToken, presented: &PresentedCredentials<'_>) -> AuthenticationResult {
    match (&verified.bound_certificate, presented.client_certificate) {
        (None, _) => AuthenticationResult::Authenticated(Arc::clone(&verified.caller)),
        (Some(bound), Some(peer)) if bound == peer.fingerprint() && peer.is_valid_at(unix_now()) => {
            AuthenticationResult::Authenticated(Arc::clone(&verified.caller))
        }
        (Some(_), _) => {
            AuthenticationResult::Invalid(InvalidCredential::new("the token is bound to another client certificate"))
        }
    }
}
