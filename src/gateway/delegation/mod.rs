//! Delegation chains (R85, R87): the calls that led to a call, as claims that the gateway signs (JWT). Only the agent
//! that a chain was sent to may continue it; a chain that is unsigned or signed by an untrusted issuer is refused and
//! never forwarded. The gateway stores nothing: a chain carries all of its own state.

mod config;

pub use config::Config;
use config::{Loops, TrustedGateway};

use crate::{
    fault::{Code, Fault, Result},
    seal::{Refused, Signer, Trusted},
    unit::Glob,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, fs, sync::Arc};

/// The header that carries the chain.
pub(super) const CHAIN: HeaderName = HeaderName::from_static("x-delegation-chain");
/// The `typ` of the tokens (RFC 8725 §3.11).
const KIND: &str = "delegation-chain+jwt";
/// Maximum bytes of a chain; sixteen actors with usual names take a third.
const LONGEST: usize = 16 << 10;
/// Maximum bytes of one name in a chain.
const LONGEST_NAME: usize = 512;
/// Accepted difference between the clocks of two gateways, in seconds.
const LEEWAY: i64 = 10;

/// The compiled delegation configuration: verifies, extends and signs chains.
#[derive(Debug)]
pub struct Delegation {
    signer: Arc<Signer>,
    own: Believed,
    actors: BTreeMap<String, Vec<Glob>>,
    required_of: Vec<Glob>,
    trusted: Vec<(Believed, Vec<Glob>)>,
    lifetime: i64,
    most: usize,
    loops: Loops,
}

#[derive(Debug)]
struct Believed {
    issuer: Box<str>,
    keys: Trusted,
}

/// The claims of a chain: the last call in the registered claims, the calls before it in `chain`, first call first.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Claims {
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
    chain: Vec<Actor>,
}

/// A call in the chain.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Actor {
    iss: String,
    sub: String,
    agent: String,
    call: String,
    iat: i64,
}

/// The call that a chain is extended by.
pub(super) struct Hop<'a> {
    pub(super) caller: &'a str,
    pub(super) agent: &'a str,
    pub(super) call: &'a str,
}

impl Delegation {
    /// Compiles `config`; `signer` signs the chains, and `issuer` is their `iss`. Reads the key files.
    ///
    /// # Errors
    /// Every problem, by its path in the section `delegation`.
    pub fn new(
        config: &Config,
        signer: Option<&Arc<Signer>>,
        issuer: Option<&str>,
    ) -> std::result::Result<Self, Vec<String>> {
        let mut problems = config.problems();
        let mut trusted = Vec::new();
        for (at, gateway) in config.trusted.iter().enumerate() {
            match keys(gateway) {
                Ok(keys) => {
                    let believed = Believed { issuer: gateway.issuer.as_str().into(), keys };
                    trusted.push((believed, gateway.callers.clone()));
                }
                Err(why) => problems.push(format!("trusted[{at}].keys: {why}")),
            }
            if issuer == Some(&gateway.issuer) {
                problems.push(format!("trusted[{at}].issuer: is this gateway's own issuer (name another gateway)"));
            }
        }
        let Some((signer, issuer)) = signer.zip(issuer) else {
            problems.push("needs directory.signing_key and directory.url (chains are signed)".to_owned());
            return Err(problems);
        };
        let keys = Trusted::from_jwks(&signer.jwks()).map_err(|why| vec![why])?;
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            signer: Arc::clone(signer),
            own: Believed { issuer: issuer.into(), keys },
            actors: config.actors.clone(),
            required_of: config.required_of.clone(),
            trusted,
            lifetime: i64::try_from(config.lifetime.get().as_secs()).unwrap_or(600),
            most: usize::from(config.most_actors),
            loops: config.loops,
        })
    }

    /// Builds the chain for the agent: the chain that the caller sent, or a new one, extended by this call.
    ///
    /// # Errors
    /// `InvalidInput` if the header is not a chain; `PermissionDenied` if the caller may not continue the chain, or not
    /// to this agent.
    pub(super) fn extend(&self, headers: &HeaderMap, hop: &Hop<'_>) -> Result<HeaderValue> {
        let now = time::OffsetDateTime::now_utc().unix_timestamp();
        let chain = match given(headers)? {
            Some(token) => self.believe(token, hop, now)?,
            None if self.required_of.iter().any(|glob| glob.matches(hop.caller)) => {
                return Err(denied("This caller must send the X-Delegation-Chain that it received"));
            }
            None => Vec::new(),
        };
        if chain.len() >= self.most {
            return Err(denied(format!("The delegation chain is too deep (at most {} actors)", self.most)));
        }
        let mut own = chain.iter().filter(|actor| *actor.iss == *self.own.issuer);
        if self.loops == Loops::Refuse && own.any(|actor| actor.agent == hop.agent) {
            return Err(denied("The delegation chain contains a loop: this agent is already in it"));
        }
        let claims = Claims {
            iss: self.own.issuer.to_string(),
            iat: now,
            exp: now.saturating_add(self.lifetime),
            sub: hop.caller.to_owned(),
            aud: hop.agent.to_owned(),
            jti: hop.call.to_owned(),
            chain,
        };
        let failed = || Fault::new(Code::Internal, "The gateway failed").detail("signing the delegation chain failed");
        let claims = serde_json::to_value(&claims).map_err(|_| failed())?;
        let token = self.signer.token(KIND, &claims).ok_or_else(failed)?;
        if token.len() > LONGEST {
            return Err(denied(format!("The delegation chain is too long (at most {LONGEST} bytes)")));
        }
        let mut value = HeaderValue::try_from(token).map_err(|_| failed())?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Verifies a chain and that the caller may continue it; returns the calls in it.
    fn believe(&self, token: &str, hop: &Hop<'_>, now: i64) -> Result<Vec<Actor>> {
        let stranger = || denied("The X-Delegation-Chain is not signed by a trusted gateway");
        let sets = std::iter::once((&self.own, None)).chain(self.trusted.iter().map(|(set, who)| (set, Some(who))));
        for (believed, presenters) in sets {
            let claims = match believed.keys.claims(KIND, token) {
                Ok(claims) => claims,
                Err(Refused::Foreign) => continue,
                Err(Refused::Malformed(why)) => return Err(malformed().detail(why)),
            };
            let claims = Claims::read(claims, now)?;
            // A key is valid only for chains of its own gateway.
            if *claims.iss != *believed.issuer {
                return Err(stranger());
            }
            let may = match presenters {
                Some(callers) => callers.iter().any(|glob| glob.matches(hop.caller)),
                None => self.is_actor(&claims.aud, hop.caller),
            };
            return if may {
                Ok(claims.actors())
            } else {
                Err(denied("The X-Delegation-Chain was not sent to this caller"))
            };
        }
        Err(stranger())
    }

    /// Whether `caller` is a name under which the agent calls other agents.
    fn is_actor(&self, agent: &str, caller: &str) -> bool {
        let listed = self.actors.get(agent).is_some_and(|globs| globs.iter().any(|glob| glob.matches(caller)));
        listed || caller.strip_prefix("key:") == Some(agent)
    }
}

impl Claims {
    /// Parses the claims of a verified token, and checks that it is valid now.
    fn read(claims: Value, now: i64) -> Result<Self> {
        let claims: Self = serde_json::from_value(claims).map_err(|why| malformed().detail(why))?;
        let Self { iss, sub, aud, jti, chain, .. } = &claims;
        let before = chain.iter().flat_map(|actor| [&actor.iss, &actor.sub, &actor.agent, &actor.call]);
        let fits = |name: &String| (1..=LONGEST_NAME).contains(&name.len());
        if ![iss, sub, aud, jti].into_iter().chain(before).all(fits) {
            return Err(malformed().detail("a name is empty or too long"));
        }
        if claims.exp.saturating_add(LEEWAY) <= now || claims.iat > now.saturating_add(LEEWAY) {
            return Err(denied("The X-Delegation-Chain has expired"));
        }
        Ok(claims)
    }

    /// Returns every call in the chain, last call last.
    fn actors(self) -> Vec<Actor> {
        let Self { iss, iat, sub, aud, jti, mut chain, .. } = self;
        chain.push(Actor { iss, sub, agent: aud, call: jti, iat });
        chain
    }
}

/// Returns the chain that the caller sent.
fn given(headers: &HeaderMap) -> Result<Option<&str>> {
    let mut values = headers.get_all(CHAIN).into_iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(malformed().detail("the header is repeated"));
    }
    let token = value.to_str().ok().filter(|token| token.len() <= LONGEST);
    token.map(Some).ok_or_else(|| malformed().detail("the chain is too long or not ASCII"))
}

fn malformed() -> Fault {
    Fault::new(Code::InvalidInput, "The X-Delegation-Chain is not a signed chain (send the one that you received)")
}

fn denied(why: impl Into<std::borrow::Cow<'static, str>>) -> Fault {
    Fault::new(Code::PermissionDenied, why)
}

fn keys(gateway: &TrustedGateway) -> std::result::Result<Trusted, String> {
    let shown = gateway.keys.display();
    let text = fs::read(&*gateway.keys).map_err(|why| format!("{shown} cannot be read ({why})"))?;
    let set = serde_json::from_slice(&text).map_err(|why| format!("{shown} is not valid JSON ({why})"))?;
    Trusted::from_jwks(&set).map_err(|why| format!("{shown}: {why}"))
}

#[cfg(test)]
mod tests;
