//! JWT parser (RFC 7515, RFC 7519), strict: a token that two parsers could read differently is malformed. Nothing is
//! trusted before the signature over `signing_input` has been checked.

use super::claims::Claims;
use crate::auth::caller::Bad;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use std::fmt;

/// Returns whether a token is to be parsed as a JWT: three parts, of which the first starts like a JSON object in
/// base64. Such a token is never handled as an opaque one.
pub(super) fn is_jwt(token: &str) -> bool {
    token.bytes().filter(|b| *b == b'.').count() == 2 && ["ey", "ew", "ex"].iter().any(|begin| token.starts_with(begin))
}

/// A signed token (JWS, compact serialization).
#[derive(Debug)]
pub(super) struct Jws<'a> {
    pub(super) algorithm: String,
    pub(super) kid: Option<String>,
    pub(super) typ: Option<String>,
    pub(super) claims: Claims,
    /// The signing input.
    pub(super) signed: &'a [u8],
    /// Signature, in base64url.
    pub(super) signature: &'a str,
}

impl<'a> Jws<'a> {
    pub(super) fn read(token: &'a str) -> Result<Self, Bad> {
        let malformed = || Bad::new("the token is malformed");
        let (signed, signature) = token.rsplit_once('.').ok_or_else(malformed)?;
        let (header, claims) = signed.split_once('.').ok_or_else(malformed)?;
        let (header, claims) = (object(header)?, object(claims)?);
        // RFC 7515 §4.1.11: no extension is supported, so none may be critical. `b64` is an extension.
        if header.text("alg").is_none() || header.get("crit").is_some() || header.get("b64").is_some() {
            return Err(Bad::new("the token's header is not accepted"));
        }
        let text = |name: &str| match header.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() <= 512 => Ok(Some(text.clone())),
            Some(_) => Err(Bad::new("the token's header is not accepted")),
        };
        URL_SAFE_NO_PAD.decode(signature).map_err(|_| malformed())?;
        // `jwk`, `jku`, `x5u` and `x5c` name keys of the sender's choice and are ignored.
        Ok(Self {
            algorithm: text("alg")?.unwrap_or_default(),
            kid: text("kid")?,
            typ: text("typ")?,
            claims,
            signed: signed.as_bytes(),
            signature,
        })
    }
}

fn object(part: &str) -> Result<Claims, Bad> {
    let malformed = || Bad::new("the token is malformed");
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed())?;
    let Strict(value) = serde_json::from_slice(&bytes).map_err(|why| malformed().detail(why))?;
    value.is_object().then_some(Claims(value)).ok_or_else(malformed)
}

/// JSON without duplicate members, which two parsers could read differently. serde_json bounds the depth.
pub(super) struct Strict(pub(super) Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("JSON")
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
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, Strict(value))) = members.next_entry::<String, Strict>()? {
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom("an object has a duplicate member"));
            }
        }
        Ok(Value::Object(object))
    }
}
