//! JWT issuer: verifies the issuer's tokens (RFC 7519, RFC 9068, RFC 8725).

use super::{
    TokenError, VerifiedToken,
    claims::CallerMapper,
    jwks::{FetchReason, FetchedKeys, JwksCache, JwksLocation},
    jwt::SignedJwt,
    token_check_unavailable, verification_key,
};
use crate::{
    auth::{
        AuthServices,
        caller::{InvalidCredential, unix_now},
        config::{self, SignatureAlgorithm},
        grants::GrantIndex,
    },
    values::ConfigDuration,
};
use std::{sync::Arc, time::Duration};

/// Maximum number of keys tried for one token: several may share an id, and a token may name none.
const MAX_KEYS_TRIED: usize = 4;

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
        grants: &Arc<GrantIndex>,
        services: &AuthServices,
        previous: Option<&Self>,
    ) -> Result<Self, Vec<String>> {
        let mut problems = issuer_problems(config);
        let location = match &config.jwks_url {
            Some(url) => JwksLocation::Url(url.clone()),
            None => {
                let default_url =
                    || format!("{}/.well-known/openid-configuration", config.issuer.trim_end_matches('/'));
                JwksLocation::Discovery {
                    issuer: config.issuer.clone(),
                    url: config.discovery_url.clone().unwrap_or_else(default_url),
                }
            }
        };
        let (field, url) = match &location {
            JwksLocation::Url(url) => ("jwks_url", url),
            JwksLocation::Discovery { url, .. } if config.discovery_url.is_some() => ("discovery_url", url),
            JwksLocation::Discovery { url, .. } => ("issuer", url),
        };
        if let Err(why) = services.client.check_url(url) {
            problems.push(format!("{field}: {url} {why}"));
        }
        let callers = CallerMapper::build(config.label.as_deref(), &config.claims, grants);
        let callers = callers.map_err(|whys| problems.extend(whys));
        let (Ok(callers), true) = (callers, problems.is_empty()) else {
            return Err(problems);
        };
        let (client, metrics) = (services.client.clone(), Arc::clone(&services.metrics));
        let jwks = Arc::new(JwksCache::new(location, client, metrics, previous.map(|previous| &*previous.jwks)));
        Ok(Self { config: config.clone(), caller_mapper: callers, jwks, leeway: as_seconds(config.leeway) })
    }

    pub(super) fn has_name(&self, iss: &str) -> bool {
        self.config.issuer == iss
    }

    pub(super) fn tick(&self) {
        self.jwks.refresh_if_due(self.config.jwks_refresh_interval.get(), self.config.min_jwks_refetch_interval.get());
    }

    /// Verifies a token, the signature first: claims of an unsigned token get no error of their own.
    pub(super) async fn verify(&self, jws: &SignedJwt<'_>) -> Result<VerifiedToken, TokenError> {
        let algorithm = verification_key::parse_algorithm(&jws.algorithm)
            .filter(|algorithm| self.config.algorithms.contains(algorithm));
        let algorithm = algorithm.ok_or_else(|| InvalidCredential::new("the token's algorithm is not accepted"))?;
        if !self.accepts_type(jws.typ.as_deref()) {
            return Err(InvalidCredential::new("the token's type is not accepted").into());
        }
        self.check_signature(jws, algorithm).await?;
        let until = jws.claims.check_lifetime(unix_now(), self.leeway)?;
        let until = until.ok_or_else(|| InvalidCredential::new("the token does not tell when it expires"))?;
        jws.claims.check_audience(&self.config.audience)?;
        Ok(VerifiedToken {
            caller: self.caller_mapper.caller_from_claims(&jws.claims)?,
            valid_until: until,
            bound_certificate: jws.claims.bound_certificate()?,
        })
    }

    /// Returns whether `typ` is accepted. RFC 7515 §4.1.9: `application/` is optional. RFC 7519 §5.1: JWT is the
    /// default.
    fn accepts_type(&self, typ: Option<&str>) -> bool {
        let short = |text: &str| match text.get(..12) {
            Some(begin) if begin.eq_ignore_ascii_case("application/") => {
                text.get(12..).unwrap_or_default().to_ascii_lowercase()
            }
            _ => text.to_ascii_lowercase(),
        };
        let typ = short(typ.unwrap_or("JWT"));
        self.config.token_types.iter().any(|accepted| short(accepted) == typ)
    }

    async fn check_signature(&self, jws: &SignedJwt<'_>, algorithm: SignatureAlgorithm) -> Result<(), TokenError> {
        let set = self.fresh_keys().await?;
        if is_signed_by(&set, jws, algorithm) {
            return Ok(());
        }
        // If the named key is known, the signature is wrong; an unknown key may be new.
        let known = jws.kid.is_some()
            && set.keys.iter().any(|key| key.kid.is_some() && key.matches(algorithm, jws.kid.as_deref()));
        if !known {
            let good = self.jwks.refresh(FetchReason::UnknownKey(self.config.min_jwks_refetch_interval.get())).await;
            if self.jwks.keys().is_some_and(|set| is_signed_by(&set, jws, algorithm)) {
                return Ok(());
            }
            if !good {
                return Err(token_check_unavailable(format!(
                    "the keys of {} cannot be fetched, and the token's key is unknown",
                    self.config.issuer
                )));
            }
        }
        Err(InvalidCredential::new("the token's signature is not valid").into())
    }

    /// Returns the keys, unless they are stale.
    async fn fresh_keys(&self) -> Result<Arc<FetchedKeys>, TokenError> {
        let max_age = self.config.max_jwks_staleness.get();
        let fresh = || self.jwks.keys().filter(|set| set.fetched.elapsed() < max_age);
        if let Some(set) = fresh() {
            return Ok(set);
        }
        self.jwks.refresh(FetchReason::NoFreshKeys).await;
        fresh().ok_or_else(|| token_check_unavailable(format!("the keys of {} cannot be fetched", self.config.issuer)))
    }
}

fn is_signed_by(set: &FetchedKeys, jws: &SignedJwt<'_>, algorithm: SignatureAlgorithm) -> bool {
    let fitting = set.keys.iter().filter(|key| key.matches(algorithm, jws.kid.as_deref()));
    fitting.take(MAX_KEYS_TRIED).any(|key| key.verify_signature(algorithm, jws.signing_input, jws.signature))
}

fn issuer_problems(config: &config::IssuerConfig) -> Vec<String> {
    let mut problems = Vec::new();
    let mut require = |holds: bool, problem: &str| {
        if !holds {
            problems.push(problem.to_owned());
        }
    };
    let within = |span: ConfigDuration, least: u64, most: u64| {
        (Duration::from_secs(least)..=Duration::from_secs(most)).contains(&span.get())
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
    require(within(config.leeway, 0, 300), "leeway: is out of bounds (at most 5m)");
    require(within(config.jwks_refresh_interval, 1, 86_400), "jwks_refresh_interval: is out of bounds (1s to 1d)");
    require(
        within(config.min_jwks_refetch_interval, 1, 3_600),
        "min_jwks_refetch_interval: is out of bounds (1s to 1h)",
    );
    require(
        config.max_jwks_staleness >= config.jwks_refresh_interval,
        "max_jwks_staleness: is too short (at least jwks_refresh_interval)",
    );
    problems
}

pub(super) fn as_seconds(duration: ConfigDuration) -> i64 {
    duration.get().as_secs().try_into().unwrap_or(i64::MAX)
}
