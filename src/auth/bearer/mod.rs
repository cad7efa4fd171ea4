//! Authentication by bearer token (RFC 6750): JWTs of configured issuers, other tokens by introspection. A verified
//! token is cached by its hash; conditions that depend on the time or the connection are checked for every call.

mod claims;
mod introspection;
mod issuer;
mod jwk;
mod jwks;
mod token;

use super::{
    Services,
    access::Access,
    caller::{Bad, Caller, Presented, Verdict, now},
    config,
};
use crate::fault::{Code, Fault};
use aws_lc_rs::digest;
use http::{HeaderMap, header};
use introspection::Introspector;
use issuer::Issuer;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

/// Maximum length of a token; longer ones are refused before they are hashed.
const LONGEST: usize = 16 << 10;

/// `Retry-After` for callers while an issuer is unreachable.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// A verified token.
#[derive(Debug)]
pub(super) struct Verified {
    caller: Arc<Caller>,
    /// First second at which the token must be verified again, or is no longer valid.
    until: i64,
    /// Fingerprint of the certificate that the token is bound to (RFC 8705 §3).
    bound: Option<[u8; 32]>,
}

/// Why a token was not verified.
#[derive(Debug)]
pub(super) enum Trouble {
    Bad(Bad),
    CannotTell(Fault),
}

impl From<Bad> for Trouble {
    fn from(bad: Bad) -> Self {
        Self::Bad(bad)
    }
}

impl From<Trouble> for Verdict {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Bad(bad) => Self::Bad(bad),
            Trouble::CannotTell(fault) => Self::CannotTell(fault),
        }
    }
}

/// A technical failure: not the caller's fault, and never a reason to accept the token.
#[cold]
fn cannot_tell(detail: impl std::fmt::Display) -> Trouble {
    let fault = Fault::new(Code::Overloaded, "The token cannot be checked at the moment");
    Trouble::CannotTell(fault.detail(detail).retry_after(RETRY_AFTER))
}

/// Verifies bearer tokens and caches the results.
#[derive(Debug)]
pub(super) struct Bearer {
    issuers: Vec<Issuer>,
    introspector: Option<Introspector>,
    verified: moka::sync::Cache<[u8; 32], Arc<Verified>>,
    remembered: i64,
}

impl Bearer {
    pub(super) fn build(
        config: &config::Bearer,
        access: &Arc<Access>,
        services: &Services,
        previous: Option<&Self>,
    ) -> Result<Self, Vec<String>> {
        let mut problems = problems(config);
        let mut issuers = Vec::with_capacity(config.issuers.len());
        for (at, settings) in config.issuers.iter().enumerate() {
            let before =
                previous.and_then(|bearer| bearer.issuers.iter().find(|issuer| issuer.is_named(&settings.issuer)));
            match Issuer::build(settings, access, services, before) {
                Ok(issuer) => issuers.push(issuer),
                Err(whys) => problems.extend(whys.into_iter().map(|why| format!("bearer.issuers[{at}].{why}"))),
            }
        }
        let introspector =
            config.introspection.as_ref().map(|settings| Introspector::build(settings, access, services));
        let introspector = introspector.transpose().map_err(|whys| {
            problems.extend(whys.into_iter().map(|why| format!("bearer.introspection.{why}")));
        });
        let (Ok(introspector), true) = (introspector, problems.is_empty()) else {
            return Err(problems);
        };
        let remembered = config.token_cache_ttl.get();
        let verified =
            moka::sync::Cache::builder().max_capacity(config.max_cached_tokens).time_to_live(remembered).build();
        Ok(Self { issuers, introspector, verified, remembered: remembered.as_secs().try_into().unwrap_or(0) })
    }

    /// Starts background fetches of issuers' keys that are due, so that calls do not wait for them.
    pub(super) fn tick(&self) {
        self.issuers.iter().for_each(Issuer::tick);
    }

    /// Checks a token without I/O and without allocation; `None` if the token is not cached.
    pub(super) fn check_at_once(&self, presented: &Presented<'_>) -> Option<Verdict> {
        let token = match shown(presented.headers) {
            Ok(Some(token)) => token,
            Ok(None) => return Some(Verdict::NotMine),
            Err(bad) => return Some(Verdict::Bad(bad)),
        };
        let verified = self.verified.get(&sha256(token)).filter(|verified| now() < verified.until)?;
        Some(bound_to(&verified, presented))
    }

    /// Checks a token, by its signature or by introspection if it is not cached.
    pub(super) async fn check(&self, presented: &Presented<'_>) -> Verdict {
        if let Some(verdict) = self.check_at_once(presented) {
            return verdict;
        }
        let Ok(Some(token)) = shown(presented.headers) else {
            return Verdict::NotMine;
        };
        let hash = sha256(token);
        let verified = match token::is_jwt(token) {
            true => self.verify(token).await,
            false => self.ask(token, hash).await,
        };
        match verified {
            Ok(verified) => {
                self.verified.insert(hash, Arc::clone(&verified));
                bound_to(&verified, presented)
            }
            Err(trouble) => trouble.into(),
        }
    }

    async fn verify(&self, token: &str) -> Result<Arc<Verified>, Trouble> {
        let jws = token::Jws::read(token)?;
        let issuer = jws.claims.text("iss").and_then(|name| self.issuers.iter().find(|issuer| issuer.is_named(name)));
        let issuer = issuer.ok_or_else(|| Bad::new("the token's issuer is not accepted"))?;
        let mut verified = issuer.verify(&jws).await?;
        verified.until = verified.until.min(now() + self.remembered);
        Ok(Arc::new(verified))
    }

    async fn ask(&self, token: &str, hash: [u8; 32]) -> Result<Arc<Verified>, Trouble> {
        match &self.introspector {
            Some(introspector) => introspector.ask(token, hash).await,
            None => Err(Bad::new("the token is not a JWT").into()),
        }
    }
}

/// Returns the problems of the section; issuers and introspection report their own.
fn problems(config: &config::Bearer) -> Vec<String> {
    let mut problems = Vec::new();
    if config.issuers.is_empty() && config.introspection.is_none() {
        problems.push("bearer: accepts no token (write issuers or introspection)".to_owned());
    }
    if !(1..=10_000_000).contains(&config.max_cached_tokens) {
        problems.push("bearer.token_cache_size: is out of bounds (1 to 10000000)".to_owned());
    }
    if !(Duration::from_secs(1)..=Duration::from_secs(3_600)).contains(&config.token_cache_ttl.get()) {
        problems.push("bearer.token_cache_for: is out of bounds (1s to 1h)".to_owned());
    }
    if !is_labelled(config) {
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
fn is_labelled(config: &config::Bearer) -> bool {
    let mut places: HashMap<Option<&str>, Option<&str>> = HashMap::new();
    let issuers = config.issuers.iter().map(|issuer| (Some(issuer.issuer.as_str()), issuer.label.as_deref()));
    let asked = config.introspection.iter().map(|asked| (asked.issuer.as_deref(), asked.label.as_deref()));
    let agree = issuers.chain(asked).all(|(place, label)| *places.entry(place).or_insert(label) == label);
    let labels: HashSet<_> = places.values().collect();
    agree && labels.len() == places.len() && (places.len() < 2 || !labels.contains(&None))
}

/// Returns the token in `Authorization`, if the scheme is `Bearer`.
fn shown(headers: &HeaderMap) -> Result<Option<&str>, Bad> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(None);
    };
    let malformed = || Bad::new("the token is malformed");
    let bytes = value.as_bytes();
    let (scheme, rest) = bytes.split_at(bytes.len().min(6));
    if !scheme.eq_ignore_ascii_case(b"bearer") || rest.first().is_some_and(|next| *next != b' ') {
        return Ok(None);
    }
    let token = std::str::from_utf8(rest).map_err(|_| malformed())?.trim_matches(' ');
    // RFC 6750 §2.1: b64token. Without an early exit, the compiler vectorizes the loop.
    let fits = |b: u8| matches!(b, b'A'..=b'Z' | b'a'..=b'z' | b'-'..=b'9' | b'_' | b'~' | b'+' | b'=');
    let fit = |token: &str| token.bytes().fold(true, |fit, b| fit & fits(b));
    match !token.is_empty() && token.len() <= LONGEST && fit(token) {
        true => Ok(Some(token)),
        false => Err(malformed()),
    }
}

/// Checks the certificate binding (RFC 8705 §3): a bound token is valid only on a connection with its certificate.
fn bound_to(verified: &Verified, presented: &Presented<'_>) -> Verdict {
    match (&verified.bound, presented.peer) {
        (None, _) => Verdict::Known(Arc::clone(&verified.caller)),
        (Some(bound), Some(peer)) if bound == peer.fingerprint() && peer.is_valid_at(now()) => {
            Verdict::Known(Arc::clone(&verified.caller))
        }
        (Some(_), _) => Verdict::Bad(Bad::new("the token is bound to another client certificate")),
    }
}

fn sha256(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    hash
}
