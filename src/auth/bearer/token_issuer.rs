//! JWT issuer: verifies the issuer's tokens (RFC 7519, RFC 9068, RFC 8725).

use super::{
    caller_mapper::CallerMapper,
    claims::{TokenClaims, as_seconds},
    jwks::{FetchReason, FetchedKeys, JwksCache, JwksLocation, TokenSource},
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
    signing::{CompactJws, SignatureAlgorithm},
    values::{ConfigDuration, json::truncate, shown_url},
};
use std::{sync::Arc, time::Duration};

/// Maximum number of keys tried for one token: several keys may share an id, and a token may name no key.
const MAX_KEYS_TRIED: usize = 4;

/// Maximum length of a token's key id in the log, in characters.
const MAX_LOGGED_KEY_ID: usize = 100;

#[derive(Debug)]
pub(super) struct TokenIssuer {
    config: config::IssuerConfig,
    caller_mapper: CallerMapper,
    jwks: Arc<JwksCache>,
    leeway: i64,
}

impl TokenIssuer {
    pub(super) fn build(
        config: &config::IssuerConfig,
        context: &BuildContext<'_>,
        previous: Option<&Self>,
    ) -> Result<Self, Vec<String>> {
        let services = context.services;
        let mut problems = issuer_problems(config);
        let location = JwksLocation::of_issuer(config);
        let (field, url) = match &location {
            JwksLocation::Url(url) => ("jwks_url", url),
            JwksLocation::Discovery { url, .. } if config.discovery_url.is_some() => ("discovery_url", url),
            JwksLocation::Discovery { url, .. } => ("issuer", url),
        };
        if let Err(why) = services.client.check_url(url) {
            problems.push(format!("{field}: {} {why}", shown_url(url)));
        }
        let caller_mapper = CallerMapper::build(config.label.as_deref(), &config.claims, context);
        let caller_mapper = caller_mapper.map_err(|reasons| problems.extend(reasons));
        let (Ok(caller_mapper), true) = (caller_mapper, problems.is_empty()) else {
            return Err(problems);
        };
        let (client, metrics) = (services.client.clone(), Arc::clone(&services.metrics));
        let jwks = Arc::new(JwksCache::new(
            config.metric_label(),
            location,
            client,
            metrics,
            previous.map(|previous| &*previous.jwks),
        ));
        Ok(Self { config: config.clone(), caller_mapper, jwks, leeway: as_seconds(config.leeway) })
    }

    pub(super) fn has_name(&self, iss: &str) -> bool {
        self.config.issuer == iss
    }

    /// Starts a background fetch of the keys if one is due.
    pub(super) fn refresh_keys_if_due(&self) {
        self.jwks.refresh_if_due(self.config.jwks_refresh_interval.get(), self.config.min_jwks_refetch_interval.get());
    }

    /// Verifies a token. The signature comes first, so that a forged token reveals nothing about the checks of claims.
    pub(super) async fn verify(
        &self,
        jws: &CompactJws<'_>,
        claims: &TokenClaims,
        source: TokenSource,
    ) -> Result<VerifiedToken, AuthenticationFailure> {
        if jws.header.algorithm.is_none() {
            return Err(InvalidCredential::new("the token's header is not accepted").into());
        }
        let algorithm = jws.header.signature_algorithm().filter(|name| self.config.algorithms.contains(name));
        let algorithm = algorithm.ok_or_else(|| InvalidCredential::new("the token's algorithm is not accepted"))?;
        if !self.accepts_type(jws.header.typ.as_deref()) {
            return Err(InvalidCredential::new("the token's type is not accepted").into());
        }
        self.check_signature(jws, algorithm, source).await?;
        let expires_at = claims.check_lifetime(unix_now(), self.leeway)?;
        let expires_at = expires_at.ok_or_else(|| InvalidCredential::new("the token has no expiration time"))?;
        claims.check_audience(&self.config.audience)?;
        Ok(VerifiedToken {
            caller: self.caller_mapper.caller_from_claims(claims)?,
            valid_until: expires_at,
            bound_certificate: claims.bound_certificate()?,
            identity: TokenIdentity::new(
                RevocationKey::of_signed_text(jws.signing_input()),
                claims.names(&self.config.issuer),
            ),
        })
    }

    /// Returns whether `typ` is accepted. RFC 7515 §4.1.9: `application/` is optional. RFC 7519 §5.1: JWT is the
    /// default.
    fn accepts_type(&self, typ: Option<&str>) -> bool {
        let without_prefix = |text: &str| match text.get(..12) {
            Some(prefix) if prefix.eq_ignore_ascii_case("application/") => {
                text.get(12..).unwrap_or_default().to_ascii_lowercase()
            }
            _ => text.to_ascii_lowercase(),
        };
        let typ = without_prefix(typ.unwrap_or("JWT"));
        self.config.token_types.iter().any(|accepted| without_prefix(accepted) == typ)
    }

    async fn check_signature(
        &self,
        jws: &CompactJws<'_>,
        algorithm: SignatureAlgorithm,
        source: TokenSource,
    ) -> Result<(), AuthenticationFailure> {
        let set = self.fresh_keys().await?;
        if is_signed_by(&set, jws, algorithm) {
            return Ok(());
        }
        // With a known key the signature is wrong. An unknown key may be new.
        let key_id = jws.header.key_id.as_deref();
        let is_key_known =
            key_id.is_some() && set.keys.iter().any(|key| key.has_key_id() && key.matches(algorithm, key_id));
        let interval = self.config.min_jwks_refetch_interval.get();
        if !is_key_known && !self.jwks.has_no_key_for(source, interval) {
            let outcome = self.jwks.refresh_for_unknown_key(source, interval).await;
            if self.jwks.keys().is_some_and(|set| is_signed_by(&set, jws, algorithm)) {
                return Ok(());
            }
            if !outcome.succeeded {
                return Err(token_check_unavailable(format!(
                    "the keys of {} cannot be fetched, and the token's key is unknown",
                    self.config.issuer
                )));
            }
            if let Some(fetch_began) = outcome.fetch_began {
                self.jwks.record_token_without_key(source, fetch_began);
            }
        }
        if let (Some(key_id), false) = (key_id, is_key_known) {
            let detail = format!("the issuer has no key with the id {:?}", truncate(key_id, MAX_LOGGED_KEY_ID));
            return Err(InvalidCredential::new("the token's signature is not valid").with_detail(detail).into());
        }
        Err(InvalidCredential::new("the token's signature is not valid").into())
    }

    /// Returns the keys, unless they are stale.
    async fn fresh_keys(&self) -> Result<Arc<FetchedKeys>, AuthenticationFailure> {
        let max_age = self.config.max_jwks_staleness.get();
        let fresh = || self.jwks.keys().filter(|set| set.fetched_at.elapsed() < max_age);
        if let Some(set) = fresh() {
            return Ok(set);
        }
        self.jwks.refresh(FetchReason::NoFreshKeys).await;
        fresh().ok_or_else(|| token_check_unavailable(format!("the keys of {} cannot be fetched", self.config.issuer)))
    }
}

fn is_signed_by(set: &FetchedKeys, jws: &CompactJws<'_>, algorithm: SignatureAlgorithm) -> bool {
    let candidates = set.keys.iter().filter(|key| key.matches(algorithm, jws.header.key_id.as_deref()));
    candidates.take(MAX_KEYS_TRIED).any(|key| jws.is_signed_by(key, algorithm))
}

fn issuer_problems(config: &config::IssuerConfig) -> Vec<String> {
    let mut problems = Vec::new();
    let mut require = |is_valid: bool, problem: &str| {
        if !is_valid {
            problems.push(problem.to_owned());
        }
    };
    let is_within = |duration: ConfigDuration, min: u64, max: u64| {
        (Duration::from_secs(min)..=Duration::from_secs(max)).contains(&duration.get())
    };
    require(!config.issuer.is_empty(), "issuer: is empty (write the text of the iss claim)");
    require(
        !config.audience.is_empty() && !config.audience.iter().any(String::is_empty),
        "audience: is empty (write the aud of this gateway)",
    );
    require(!config.algorithms.is_empty(), "algorithms: is empty (write the issuer's, such as RS256 or ES256)");
    require(!config.token_types.is_empty(), "token_types: is empty (at+jwt and JWT are usual)");
    require(
        config.jwks_url.is_none() || config.discovery_url.is_none(),
        "discovery_url: is not used with jwks_url (write one of them)",
    );
    require(is_within(config.leeway, 0, 300), "leeway: is out of bounds (at most 5m)");
    require(is_within(config.jwks_refresh_interval, 1, 86_400), "jwks_refresh_interval: is out of bounds (1s to 1d)");
    require(
        is_within(config.min_jwks_refetch_interval, 1, 3_600),
        "min_jwks_refetch_interval: is out of bounds (1s to 1h)",
    );
    require(
        config.max_jwks_staleness >= config.jwks_refresh_interval,
        "max_jwks_staleness: is too short (at least jwks_refresh_interval)",
    );
    problems
}
