//! Chains of delegation (R85, R87): who called whom on the way to this call, as claims that the gateway signs (JWT).
//! A chain is gone on with only by the agent that it was sent to; what is not signed, or by a stranger, is refused and
//! never passed on. It keeps nothing: all that is known of a chain stands in it.

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

/// The field.
pub(super) const CHAIN: HeaderName = HeaderName::from_static("x-delegation-chain");
/// The type of the tokens (RFC 8725 §3.11).
const KIND: &str = "delegation-chain+jwt";
/// Bytes of a chain; sixteen actors with usual names take a third of it.
const LONGEST: usize = 16 << 10;
/// Bytes of one name in it.
const LONGEST_NAME: usize = 512;
/// By how much the clocks of two gateways may differ, in seconds.
const LEEWAY: i64 = 10;

/// What is configured of chains, ready to be used.
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

/// What a chain says: the last call in the claims of its own, those before in `chain`, the first one first.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Claims {
    /// The gateway.
    iss: String,
    iat: i64,
    exp: i64,
    /// Who called.
    sub: String,
    /// The agent that was called.
    aud: String,
    /// The call's id.
    jti: String,
    #[serde(default)]
    chain: Vec<Actor>,
}

/// A call on the way.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Actor {
    iss: String,
    sub: String,
    agent: String,
    call: String,
    iat: i64,
}

/// The call that a chain is to be written for.
pub(super) struct Hop<'a> {
    pub(super) caller: &'a str,
    pub(super) agent: &'a str,
    pub(super) call: &'a str,
}

impl Delegation {
    /// What `config` asks for; chains are signed by `signer` in the name of `issuer`. Reads files.
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
                problems.push(format!("trusted[{at}].issuer: is this gateway itself"));
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

    /// The chain for the agent: the one that the caller goes on with, or a new one, with this call at its end.
    ///
    /// # Errors
    /// `InvalidInput` for what is no chain; `PermissionDenied` for one that may not be gone on with, or not to here.
    pub(super) fn extend(&self, headers: &HeaderMap, hop: &Hop<'_>) -> Result<HeaderValue> {
        let now = time::OffsetDateTime::now_utc().unix_timestamp();
        let chain = match given(headers)? {
            Some(token) => self.believe(token, hop, now)?,
            None if self.required_of.iter().any(|glob| glob.matches(hop.caller)) => {
                return Err(denied("this caller must send the X-Delegation-Chain that it was called with"));
            }
            None => Vec::new(),
        };
        if chain.len() >= self.most {
            return Err(denied(format!("the delegation chain is too deep (at most {} actors)", self.most)));
        }
        let mut own = chain.iter().filter(|actor| *actor.iss == *self.own.issuer);
        if self.loops == Loops::Refuse && own.any(|actor| actor.agent == hop.agent) {
            return Err(denied("the delegation chain is a loop: this agent is in it already"));
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
        let failed = || Fault::new(Code::Internal, "the gateway failed").detail("a delegation chain cannot be signed");
        let claims = serde_json::to_value(&claims).map_err(|_| failed())?;
        let token = self.signer.token(KIND, &claims).ok_or_else(failed)?;
        if token.len() > LONGEST {
            return Err(denied(format!("the delegation chain is too long (at most {LONGEST} bytes)")));
        }
        let mut value = HeaderValue::try_from(token).map_err(|_| failed())?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// The calls that a chain tells of, if the caller may go on with it.
    fn believe(&self, token: &str, hop: &Hop<'_>, now: i64) -> Result<Vec<Actor>> {
        let stranger = || denied("the X-Delegation-Chain is not signed by a gateway that is trusted");
        let sets = std::iter::once((&self.own, None)).chain(self.trusted.iter().map(|(set, who)| (set, Some(who))));
        for (believed, presenters) in sets {
            let claims = match believed.keys.claims(KIND, token) {
                Ok(claims) => claims,
                Err(Refused::Foreign) => continue,
                Err(Refused::Malformed(why)) => return Err(malformed().detail(why)),
            };
            let claims = Claims::read(claims, now)?;
            // A key speaks for its own gateway alone.
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
                Err(denied("the X-Delegation-Chain was not sent to this caller"))
            };
        }
        Err(stranger())
    }

    /// Whether the agent calls others as `caller`.
    fn is_actor(&self, agent: &str, caller: &str) -> bool {
        let listed = self.actors.get(agent).is_some_and(|globs| globs.iter().any(|glob| glob.matches(caller)));
        listed || caller.strip_prefix("key:") == Some(agent)
    }
}

impl Claims {
    /// What stands in a token that is believed, if its time is now.
    fn read(claims: Value, now: i64) -> Result<Self> {
        let claims: Self = serde_json::from_value(claims).map_err(|why| malformed().detail(why))?;
        let Self { iss, sub, aud, jti, chain, .. } = &claims;
        let before = chain.iter().flat_map(|actor| [&actor.iss, &actor.sub, &actor.agent, &actor.call]);
        let fits = |name: &String| (1..=LONGEST_NAME).contains(&name.len());
        if ![iss, sub, aud, jti].into_iter().chain(before).all(fits) {
            return Err(malformed().detail("a name in it is empty or too long"));
        }
        if claims.exp.saturating_add(LEEWAY) <= now || claims.iat > now.saturating_add(LEEWAY) {
            return Err(denied("the X-Delegation-Chain has expired"));
        }
        Ok(claims)
    }

    /// Every call that it tells of, the last one last.
    fn actors(self) -> Vec<Actor> {
        let Self { iss, iat, sub, aud, jti, mut chain, .. } = self;
        chain.push(Actor { iss, sub, agent: aud, call: jti, iat });
        chain
    }
}

/// What the caller sent as its chain.
fn given(headers: &HeaderMap) -> Result<Option<&str>> {
    let mut values = headers.get_all(CHAIN).into_iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(malformed().detail("there are several"));
    }
    let token = value.to_str().ok().filter(|token| token.len() <= LONGEST);
    token.map(Some).ok_or_else(|| malformed().detail("it is too long, or not ASCII"))
}

fn malformed() -> Fault {
    Fault::new(Code::InvalidInput, "X-Delegation-Chain is no signed chain (send the one that you were called with)")
}

fn denied(why: impl Into<std::borrow::Cow<'static, str>>) -> Fault {
    Fault::new(Code::PermissionDenied, why)
}

fn keys(gateway: &TrustedGateway) -> std::result::Result<Trusted, String> {
    let shown = gateway.keys.display();
    let text = fs::read(&*gateway.keys).map_err(|why| format!("{shown} cannot be read ({why})"))?;
    let set = serde_json::from_slice(&text).map_err(|why| format!("{shown} is no JSON ({why})"))?;
    Trusted::from_jwks(&set).map_err(|why| format!("{shown}: {why}"))
}

#[cfg(test)]
mod tests;
