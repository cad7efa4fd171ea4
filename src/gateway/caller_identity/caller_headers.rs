//! The fields of one agent, compiled with its route, and their values for one call.

use super::{
    caller_token::{CallerTokenSigner, TokenError, TokenSubject},
    field_text::{claim_text, list_text},
};
use crate::{
    auth::Caller,
    fault::{Fault, FaultCode, Result},
    transport::{CallerHeaderSource, CallerHeadersConfig, CallerProperty},
    values::percent_encode_field,
};
use http::{HeaderName, HeaderValue};
use std::time::Duration;

/// Maximum size of the values of all fields of one call, in bytes: servers refuse heads that are much larger.
const MAX_VALUES_SIZE: usize = 8 << 10;

/// The fields that tell an agent who calls.
#[derive(Debug)]
pub(in crate::gateway) struct CallerHeaders(Box<[CallerField]>);

#[derive(Debug)]
struct CallerField {
    name: HeaderName,
    source: FieldSource,
}

#[derive(Debug)]
enum FieldSource {
    Property(CallerProperty),
    Claim(Box<str>),
    Token { ttl: Duration, claims: Box<[Box<str>]> },
}

/// The call whose agent is told the caller.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct ToldCall<'a> {
    pub(in crate::gateway) caller: &'a Caller,
    pub(in crate::gateway) agent: &'a str,
    pub(in crate::gateway) call_id: &'a str,
    pub(in crate::gateway) signer: Option<&'a CallerTokenSigner>,
}

impl CallerHeaders {
    /// Compiles the fields; `None` if the agent is told nothing.
    pub(in crate::gateway) fn compile(config: Option<&CallerHeadersConfig>) -> Option<Self> {
        let fields = config?.0.iter().filter_map(|(name, source)| {
            let source = match source {
                CallerHeaderSource::Value(property) => FieldSource::Property(*property),
                CallerHeaderSource::Claim(path) => FieldSource::Claim(path.as_str().into()),
                CallerHeaderSource::Token(token) => FieldSource::Token {
                    ttl: token.ttl.get(),
                    claims: token.claims.iter().map(|path| path.as_str().into()).collect(),
                },
            };
            Some(CallerField { name: name.parse().ok()?, source })
        });
        let fields: Box<[CallerField]> = fields.collect();
        (!fields.is_empty()).then_some(Self(fields))
    }

    /// Returns the fields with their values. What the caller does not have is left out: a caller without a credential has
    /// no identity, and the agent reads no field but that of the method.
    ///
    /// # Errors
    /// `PermissionDenied` if the values are too long, or a claim cannot be told: an agent that is told a part of the
    /// groups would decide by the wrong ones.
    pub(in crate::gateway) fn tell(&self, call: &ToldCall<'_>) -> Result<Vec<(HeaderName, HeaderValue)>> {
        let mut fields = Vec::with_capacity(self.0.len());
        let mut size = 0;
        for CallerField { name, source } in &self.0 {
            let Some(mut value) = source.value(call)? else { continue };
            size += value.len();
            if size > MAX_VALUES_SIZE {
                let message = "The caller's identity is too long to be told to this agent (at most 8 KiB)";
                let detail = format_args!("the values up to {name} have {size} bytes");
                return Err(untold(message).with_detail(detail));
            }
            // Names of people and signed tokens stand in no table of compressed fields and in no explanation.
            value.set_sensitive(true);
            fields.push((name.clone(), value));
        }
        Ok(fields)
    }
}

impl FieldSource {
    fn value(&self, call: &ToldCall<'_>) -> Result<Option<HeaderValue>> {
        let caller = call.caller;
        let text = match self {
            Self::Property(CallerProperty::Method) => Some(percent_encode_field(caller.method.document_type())),
            _ if caller.is_anonymous() => None,
            Self::Property(property) => property_text(*property, caller),
            Self::Claim(path) => match caller.claims.get(path) {
                None => None,
                Some(claim) => claim_text(claim).map_err(|why| untold_claim(path, why))?,
            },
            Self::Token { ttl, claims } => {
                let no_key = || Fault::from(FaultCode::Internal).with_detail("no key signs tokens about callers");
                let signer = call.signer.ok_or_else(no_key)?;
                let subject = TokenSubject { agent: call.agent, call_id: call.call_id, ttl: *ttl, claims };
                return signer.sign(caller, &subject).map(Some).map_err(|error| match error {
                    TokenError::Unusable(path, why) => untold_claim(&path, why),
                    TokenError::Signing => {
                        Fault::from(FaultCode::Internal).with_detail("signing the token about the caller failed")
                    }
                });
            }
        };
        let Some(text) = text else { return Ok(None) };
        let invalid = |_| Fault::from(FaultCode::Internal).with_detail("a field that tells the caller is not valid");
        HeaderValue::try_from(text).map(Some).map_err(invalid)
    }
}

fn property_text(property: CallerProperty, caller: &Caller) -> Option<String> {
    match property {
        CallerProperty::Id => Some(percent_encode_field(&caller.id)),
        CallerProperty::Name => {
            let prefix = caller.method.caller_id_prefix();
            Some(percent_encode_field(caller.id.strip_prefix(prefix).unwrap_or(&caller.id)))
        }
        CallerProperty::Method => Some(percent_encode_field(caller.method.document_type())),
        CallerProperty::Groups => list_text(caller.groups.iter().map(|group| &**group)),
        CallerProperty::Scopes => {
            // A scope has no space (RFC 6749 §3.3); one that has a space all the same stays one.
            let scopes: Vec<String> =
                caller.scopes.iter().map(|scope| percent_encode_field(scope).replace(' ', "%20")).collect();
            (!scopes.is_empty()).then(|| scopes.join(" "))
        }
        CallerProperty::Tier => caller.tier.as_deref().map(percent_encode_field),
    }
}

fn untold_claim(path: &str, why: &'static str) -> Fault {
    untold("A claim of the caller's token cannot be told to this agent")
        .with_detail(format_args!("claim {path}: {why}"))
}

fn untold(message: &'static str) -> Fault {
    Fault::new(FaultCode::PermissionDenied, message).with_setting("agents.defaults.caller_headers")
}
