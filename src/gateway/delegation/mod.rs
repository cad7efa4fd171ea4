//! Delegation chains (R85, R87): the calls that led to a call, as claims that the gateway signs (JWT). Only the agent
//! that a chain was sent to may continue it; a chain that is unsigned or signed by an untrusted issuer is refused and
//! never forwarded. The gateway stores nothing: a chain carries all of its own state.

mod config;

pub use config::DelegationConfig;
use config::LoopPolicy;

use crate::{
    fault::{Fault, FaultCode, Result},
    signing::{ClaimsError, SigningKey, TrustedKeys},
    values::Glob,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// The header that carries the chain.
pub(super) const DELEGATION_CHAIN: HeaderName = HeaderName::from_static("x-delegation-chain");
/// The `typ` of the tokens (RFC 8725 §3.11).
const TOKEN_TYPE: &str = "delegation-chain+jwt";
/// Maximum bytes of a chain; sixteen actors with names of typical length take a third.
const MAX_CHAIN_BYTES: usize = 16 << 10;
/// Maximum bytes of one name in a chain.
const MAX_NAME_BYTES: usize = 512;
/// Accepted difference between the clocks of two gateways, in seconds.
const CLOCK_LEEWAY_SECONDS: i64 = 10;

/// The compiled delegation configuration: verifies, extends and signs chains.
#[derive(Debug)]
pub struct DelegationPolicy {
    signer: Arc<SigningKey>,
    own_issuer: TrustedIssuer,
    actors: BTreeMap<String, Vec<Glob>>,
    required_for: Vec<Glob>,
    trusted_issuers: Vec<(TrustedIssuer, Vec<Glob>)>,
    ttl_seconds: i64,
    max_actors: usize,
    loop_policy: LoopPolicy,
}

#[derive(Debug)]
struct TrustedIssuer {
    issuer: Box<str>,
    keys: TrustedKeys,
}

/// The claims of a chain: the last call in the registered claims, the calls before it in `chain`, first call first.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct ChainClaims {
    /// The issuing gateway.
    iss: String,
    iat: i64,
    exp: i64,
    /// The caller.
    sub: String,
    /// The called agent.
    aud: String,
    /// The id of the call.
    jti: String,
    #[serde(default)]
    chain: Vec<ChainActor>,
}

/// A call in the chain.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct ChainActor {
    iss: String,
    sub: String,
    agent: String,
    call: String,
    iat: i64,
}

/// The call by which a chain is extended.
pub(super) struct ChainHop<'a> {
    pub(super) caller: &'a str,
    pub(super) agent: &'a str,
    pub(super) call: &'a str,
}

impl DelegationPolicy {
    /// Compiles `config`; `signer` signs the chains, and `issuer` is their `iss`. Reads the key files.
    ///
    /// # Errors
    /// Every problem, by its path in the section `delegation`.
    pub fn new(
        config: &DelegationConfig,
        signer: Option<&Arc<SigningKey>>,
        own_issuer: Option<&str>,
    ) -> std::result::Result<Self, Vec<String>> {
        let mut problems = config.problems();
        let mut trusted_issuers = Vec::new();
        for (index, gateway) in config.trusted_issuers.iter().enumerate() {
            match TrustedKeys::from_file(&gateway.jwks) {
                Ok(keys) => {
                    let issuer_keys = TrustedIssuer { issuer: gateway.issuer.as_str().into(), keys };
                    trusted_issuers.push((issuer_keys, gateway.callers.clone()));
                }
                Err(why) => problems.push(format!("trusted_issuers[{index}].jwks: {why}")),
            }
            if own_issuer == Some(&gateway.issuer) {
                problems.push(format!(
                    "trusted_issuers[{index}].issuer: is this gateway's own issuer (name another gateway)"
                ));
            }
        }
        let Some((signer, own_issuer)) = signer.zip(own_issuer) else {
            problems.push("needs directory.signing_key and directory.external_url (chains are signed)".to_owned());
            return Err(problems);
        };
        let keys = TrustedKeys::from_jwks(&signer.jwks()).map_err(|why| vec![why])?;
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            signer: Arc::clone(signer),
            own_issuer: TrustedIssuer { issuer: own_issuer.into(), keys },
            actors: config.actors.clone(),
            required_for: config.required_for.clone(),
            trusted_issuers,
            ttl_seconds: i64::try_from(config.ttl.get().as_secs()).unwrap_or(600),
            max_actors: usize::from(config.max_actors),
            loop_policy: config.loops,
        })
    }

    /// Builds the chain for the agent: the chain that the caller sent, or a new one, extended by this call.
    ///
    /// # Errors
    /// `InvalidInput` if the header is not a chain; `PermissionDenied` if the caller may not continue the chain, or not
    /// to this agent.
    pub(super) fn extend_chain(&self, headers: &HeaderMap, hop: &ChainHop<'_>) -> Result<HeaderValue> {
        let now = time::OffsetDateTime::now_utc().unix_timestamp();
        let chain = match chain_from_headers(headers)? {
            Some(token) => self.verify_chain(token, hop, now)?,
            None if self.required_for.iter().any(|glob| glob.matches(hop.caller)) => {
                return Err(chain_denied("This caller must send the X-Delegation-Chain that it received"));
            }
            None => Vec::new(),
        };
        if chain.len() >= self.max_actors {
            return Err(chain_denied(format!("The delegation chain is too deep (at most {} actors)", self.max_actors)));
        }
        let mut own_actors = chain.iter().filter(|actor| *actor.iss == *self.own_issuer.issuer);
        if self.loop_policy == LoopPolicy::Refuse && own_actors.any(|actor| actor.agent == hop.agent) {
            return Err(chain_denied("The delegation chain contains a loop: this agent is already in it"));
        }
        let claims = ChainClaims {
            iss: self.own_issuer.issuer.to_string(),
            iat: now,
            exp: now.saturating_add(self.ttl_seconds),
            sub: hop.caller.to_owned(),
            aud: hop.agent.to_owned(),
            jti: hop.call.to_owned(),
            chain,
        };
        let signing_failed = || Fault::from(FaultCode::Internal).with_detail("signing the delegation chain failed");
        let claims = serde_json::to_value(&claims).map_err(|_| signing_failed())?;
        let token = self.signer.sign_token(TOKEN_TYPE, &claims).ok_or_else(signing_failed)?;
        if token.len() > MAX_CHAIN_BYTES {
            return Err(chain_denied(format!("The delegation chain is too long (at most {MAX_CHAIN_BYTES} bytes)")));
        }
        let mut value = HeaderValue::try_from(token).map_err(|_| signing_failed())?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Verifies a chain and that the caller may continue it; returns the calls in it.
    fn verify_chain(&self, token: &str, hop: &ChainHop<'_>, now: i64) -> Result<Vec<ChainActor>> {
        let not_trusted = || chain_denied("The X-Delegation-Chain is not signed by a trusted gateway");
        let issuers = std::iter::once((&self.own_issuer, None))
            .chain(self.trusted_issuers.iter().map(|(issuer, presenters)| (issuer, Some(presenters))));
        for (issuer, presenters) in issuers {
            let claims = match issuer.keys.verify_claims(TOKEN_TYPE, token) {
                Ok(claims) => claims,
                Err(ClaimsError::Untrusted) => continue,
                Err(ClaimsError::Malformed(why)) => return Err(invalid_chain().with_detail(why)),
            };
            let claims = ChainClaims::parse_and_validate(claims, now)?;
            // A key is valid only for chains of its own gateway.
            if *claims.iss != *issuer.issuer {
                return Err(not_trusted());
            }
            let may_continue = match presenters {
                Some(callers) => callers.iter().any(|glob| glob.matches(hop.caller)),
                None => self.is_agents_caller_name(&claims.aud, hop.caller),
            };
            return if may_continue {
                Ok(claims.into_actors())
            } else {
                Err(chain_denied("The X-Delegation-Chain was not sent to this caller"))
            };
        }
        Err(not_trusted())
    }

    /// Whether `caller` is a name under which the agent calls other agents.
    fn is_agents_caller_name(&self, agent: &str, caller: &str) -> bool {
        let is_listed = self.actors.get(agent).is_some_and(|globs| globs.iter().any(|glob| glob.matches(caller)));
        is_listed || caller.strip_prefix("key:") == Some(agent)
    }
}

impl ChainClaims {
    /// Parses the claims of a verified token, and checks that it is valid now.
    fn parse_and_validate(claims: Value, now: i64) -> Result<Self> {
        let claims: Self = serde_json::from_value(claims).map_err(|why| invalid_chain().with_detail(why))?;
        let Self { iss, sub, aud, jti, chain, .. } = &claims;
        let earlier_names = chain.iter().flat_map(|actor| [&actor.iss, &actor.sub, &actor.agent, &actor.call]);
        let is_valid_length = |name: &String| (1..=MAX_NAME_BYTES).contains(&name.len());
        if ![iss, sub, aud, jti].into_iter().chain(earlier_names).all(is_valid_length) {
            return Err(invalid_chain().with_detail("a name is empty or too long"));
        }
        if claims.exp.saturating_add(CLOCK_LEEWAY_SECONDS) <= now
            || claims.iat > now.saturating_add(CLOCK_LEEWAY_SECONDS)
        {
            return Err(chain_denied("The X-Delegation-Chain has expired"));
        }
        Ok(claims)
    }

    /// Returns every call in the chain, last call last.
    fn into_actors(self) -> Vec<ChainActor> {
        let Self { iss, iat, sub, aud, jti, mut chain, .. } = self;
        chain.push(ChainActor { iss, sub, agent: aud, call: jti, iat });
        chain
    }
}

/// Returns the chain that the caller sent.
fn chain_from_headers(headers: &HeaderMap) -> Result<Option<&str>> {
    let mut values = headers.get_all(DELEGATION_CHAIN).into_iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(invalid_chain().with_detail("the header is repeated"));
    }
    let token = value.to_str().ok().filter(|token| token.len() <= MAX_CHAIN_BYTES);
    token.map(Some).ok_or_else(|| invalid_chain().with_detail("the chain is too long or not ASCII"))
}

fn invalid_chain() -> Fault {
    Fault::new(FaultCode::InvalidInput, "The X-Delegation-Chain is not a signed chain (send the one that you received)")
}

fn chain_denied(why: impl Into<std::borrow::Cow<'static, str>>) -> Fault {
    Fault::new(FaultCode::PermissionDenied, why)
}

#[cfg(test)]
mod tests;
