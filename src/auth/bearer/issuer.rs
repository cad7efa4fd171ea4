//! JWT issuer: verifies the issuer's tokens (RFC 7519, RFC 9068, RFC 8725).

use super::{
    Trouble, Verified, cannot_tell,
    claims::CallerReader,
    jwk,
    jwks::{Jwks, KeySet, Place, Reason},
    token::Jws,
};
use crate::{
    auth::{
        Services,
        access::Access,
        caller::{Bad, now},
        config::{self, Algorithm},
    },
    unit::Span,
};
use std::{sync::Arc, time::Duration};

/// Maximum number of keys tried for one token: several may share an id, and a token may name none.
const TRIED: usize = 4;

#[derive(Debug)]
pub(super) struct Issuer {
    config: config::Issuer,
    callers: CallerReader,
    jwks: Arc<Jwks>,
    leeway: i64,
}

impl Issuer {
    pub(super) fn build(
        config: &config::Issuer,
        access: &Arc<Access>,
        services: &Services,
        previous: Option<&Self>,
    ) -> Result<Self, Vec<String>> {
        let mut problems = problems(config);
        let place = match &config.jwks_url {
            Some(url) => Place::Jwks(url.clone()),
            None => {
                let usual = || format!("{}/.well-known/openid-configuration", config.issuer.trim_end_matches('/'));
                Place::Discovery {
                    issuer: config.issuer.clone(),
                    url: config.discovery_url.clone().unwrap_or_else(usual),
                }
            }
        };
        let (field, url) = match &place {
            Place::Jwks(url) => ("jwks_url", url),
            Place::Discovery { url, .. } if config.discovery_url.is_some() => ("discovery_url", url),
            Place::Discovery { url, .. } => ("issuer", url),
        };
        if let Err(why) = services.client.vet(url) {
            problems.push(format!("{field}: {url} {why}"));
        }
        let callers = CallerReader::build(config.label.as_deref(), &config.claims, access);
        let callers = callers.map_err(|whys| problems.extend(whys));
        let (Ok(callers), true) = (callers, problems.is_empty()) else {
            return Err(problems);
        };
        let (client, metrics) = (services.client.clone(), Arc::clone(&services.metrics));
        let jwks = Arc::new(Jwks::new(place, client, metrics, previous.map(|previous| &*previous.jwks)));
        Ok(Self { config: config.clone(), callers, jwks, leeway: seconds(config.leeway) })
    }

    pub(super) fn is_named(&self, iss: &str) -> bool {
        self.config.issuer == iss
    }

    pub(super) fn tick(&self) {
        self.jwks.tick(self.config.jwks_refresh_interval.get(), self.config.min_jwks_refetch_interval.get());
    }

    /// Verifies a token, the signature first: claims of an unsigned token get no error of their own.
    pub(super) async fn verify(&self, jws: &Jws<'_>) -> Result<Verified, Trouble> {
        let algorithm = jwk::algorithm(&jws.algorithm).filter(|algorithm| self.config.algorithms.contains(algorithm));
        let algorithm = algorithm.ok_or_else(|| Bad::new("the token's algorithm is not accepted"))?;
        if !self.accepts(jws.typ.as_deref()) {
            return Err(Bad::new("the token's type is not accepted").into());
        }
        self.check_signature(jws, algorithm).await?;
        let until = jws.claims.lifetime(now(), self.leeway)?;
        let until = until.ok_or_else(|| Bad::new("the token does not tell when it expires"))?;
        jws.claims.meant_for(&self.config.audience)?;
        Ok(Verified { caller: self.callers.read(&jws.claims)?, until, bound: jws.claims.bound()? })
    }

    /// Returns whether `typ` is accepted. RFC 7515 §4.1.9: `application/` is optional. RFC 7519 §5.1: JWT is the
    /// default.
    fn accepts(&self, typ: Option<&str>) -> bool {
        let short = |text: &str| match text.get(..12) {
            Some(begin) if begin.eq_ignore_ascii_case("application/") => {
                text.get(12..).unwrap_or_default().to_ascii_lowercase()
            }
            _ => text.to_ascii_lowercase(),
        };
        let typ = short(typ.unwrap_or("JWT"));
        self.config.token_types.iter().any(|accepted| short(accepted) == typ)
    }

    async fn check_signature(&self, jws: &Jws<'_>, algorithm: Algorithm) -> Result<(), Trouble> {
        let set = self.current().await?;
        if signed_by(&set, jws, algorithm) {
            return Ok(());
        }
        // If the named key is known, the signature is wrong; an unknown key may be new.
        let known = jws.kid.is_some()
            && set.keys.iter().any(|key| key.kid.is_some() && key.fits(algorithm, jws.kid.as_deref()));
        if !known {
            let good = self.jwks.refresh(Reason::Unknown(self.config.min_jwks_refetch_interval.get())).await;
            if self.jwks.keys().is_some_and(|set| signed_by(&set, jws, algorithm)) {
                return Ok(());
            }
            if !good {
                return Err(cannot_tell(format!(
                    "the keys of {} cannot be fetched, and the token's key is unknown",
                    self.config.issuer
                )));
            }
        }
        Err(Bad::new("the token's signature is not valid").into())
    }

    /// Returns the keys, unless they are stale.
    async fn current(&self) -> Result<Arc<KeySet>, Trouble> {
        let most = self.config.max_jwks_staleness.get();
        let fresh = || self.jwks.keys().filter(|set| set.fetched.elapsed() < most);
        if let Some(set) = fresh() {
            return Ok(set);
        }
        self.jwks.refresh(Reason::Needed).await;
        fresh().ok_or_else(|| cannot_tell(format!("the keys of {} cannot be fetched", self.config.issuer)))
    }
}

fn signed_by(set: &KeySet, jws: &Jws<'_>, algorithm: Algorithm) -> bool {
    let fitting = set.keys.iter().filter(|key| key.fits(algorithm, jws.kid.as_deref()));
    fitting.take(TRIED).any(|key| key.verifies(algorithm, jws.signed, jws.signature))
}

fn problems(config: &config::Issuer) -> Vec<String> {
    let mut problems = Vec::new();
    let mut require = |holds: bool, problem: &str| {
        if !holds {
            problems.push(problem.to_owned());
        }
    };
    let within = |span: Span, least: u64, most: u64| {
        (Duration::from_secs(least)..=Duration::from_secs(most)).contains(&span.get())
    };
    require(!config.issuer.is_empty(), "issuer: is empty (write the text of the iss claim)");
    require(
        !config.audience.is_empty() && !config.audience.iter().any(String::is_empty),
        "audience: is empty (write the aud of this gateway)",
    );
    require(!config.algorithms.is_empty(), "algorithms: is empty (write the issuer's, such as RS256 or ES256)");
    require(!config.token_types.is_empty(), "types: is empty (at+jwt and JWT are usual)");
    require(
        config.jwks_url.is_none() || config.discovery_url.is_none(),
        "discovery_url: is not used with jwks_url (write one of them)",
    );
    require(within(config.leeway, 0, 300), "leeway: is out of bounds (at most 5m)");
    require(within(config.jwks_refresh_interval, 1, 86_400), "keys_refresh: is out of bounds (1s to 1d)");
    require(within(config.min_jwks_refetch_interval, 1, 3_600), "refetch_after: is out of bounds (1s to 1h)");
    require(
        config.max_jwks_staleness >= config.jwks_refresh_interval,
        "keys_stale_after: is too short (at least keys_refresh)",
    );
    problems
}

pub(super) fn seconds(span: Span) -> i64 {
    span.get().as_secs().try_into().unwrap_or(i64::MAX)
}
