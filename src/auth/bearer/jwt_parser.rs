//! Strict JWT parser (RFC 7515, RFC 7519): a token that two parsers could read differently is malformed. No claim is
//! trusted before the signature over `signing_input` has been checked.

use super::claims::TokenClaims;
use crate::auth::caller::InvalidCredential;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use std::fmt;

/// Returns whether a token is parsed as a JWT: it has three parts, and the first part starts like a JSON object in
/// base64. A JWT is never handled as an opaque token.
pub(super) fn is_jwt(token: &str) -> bool {
    token.bytes().filter(|b| *b == b'.').count() == 2 && ["ey", "ew", "ex"].iter().any(|begin| token.starts_with(begin))
}

/// A signed token (JWS, compact serialization).
#[derive(Debug)]
pub(super) struct SignedJwt<'a> {
    pub(super) algorithm: String,
    pub(super) kid: Option<String>,
    pub(super) typ: Option<String>,
    pub(super) claims: TokenClaims,
    /// Encoded header and claims, which the signature covers.
    pub(super) signing_input: &'a [u8],
    /// Signature, in base64url.
    pub(super) signature: &'a str,
}

impl<'a> SignedJwt<'a> {
    pub(super) fn parse(token: &'a str) -> Result<Self, InvalidCredential> {
        let malformed = || InvalidCredential::new("the token is malformed");
        let (signing_input, signature) = token.rsplit_once('.').ok_or_else(malformed)?;
        let (header, claims) = signing_input.split_once('.').ok_or_else(malformed)?;
        let (header, claims) = (decode_object(header)?, decode_object(claims)?);
        // RFC 7515 §4.1.11: no extension is supported, so none may be critical. `b64` is an extension.
        if header.text("alg").is_none() || header.get("crit").is_some() || header.get("b64").is_some() {
            return Err(InvalidCredential::new("the token's header is not accepted"));
        }
        let header_text = |name: &str| match header.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() <= 512 => Ok(Some(text.clone())),
            Some(_) => Err(InvalidCredential::new("the token's header is not accepted")),
        };
        URL_SAFE_NO_PAD.decode(signature).map_err(|_| malformed())?;
        // `jwk`, `jku`, `x5u` and `x5c` name keys of the sender's choice and are ignored.
        Ok(Self {
            algorithm: header_text("alg")?.unwrap_or_default(),
            kid: header_text("kid")?,
            typ: header_text("typ")?,
            claims,
            signing_input: signing_input.as_bytes(),
            signature,
        })
    }
}

fn decode_object(part: &str) -> Result<TokenClaims, InvalidCredential> {
    let malformed = || InvalidCredential::new("the token is malformed");
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed())?;
    let DuplicateFreeJson(value) = serde_json::from_slice(&bytes).map_err(|why| malformed().with_detail(why))?;
    value.is_object().then_some(TokenClaims(value)).ok_or_else(malformed)
}

/// JSON without duplicate members, which two parsers could read differently. serde_json bounds the depth.
pub(super) struct DuplicateFreeJson(pub(super) Value);

impl<'de> Deserialize<'de> for DuplicateFreeJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DuplicateFreeJsonVisitor).map(Self)
    }
}

struct DuplicateFreeJsonVisitor;

impl<'de> Visitor<'de> for DuplicateFreeJsonVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(DuplicateFreeJson(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, DuplicateFreeJson(value))) = members.next_entry::<String, DuplicateFreeJson>()? {
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("an object has a duplicate member"));
            }
        }
        Ok(Value::Object(object))
    }
}
