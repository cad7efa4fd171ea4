//! A JWT taken apart (RFC 7515, RFC 7519), strictly: one reading only, or none. Nothing here is trusted before the
//! signature has been checked over `signed`.

use super::claims::Claims;
use crate::auth::caller::Bad;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use std::fmt;

/// Whether a token is to be read as a JWT: three parts, of which the first begins as a JSON object in base64.
/// What looks like one is never handed on as anything else.
pub(super) fn is_jwt(token: &str) -> bool {
    token.bytes().filter(|b| *b == b'.').count() == 2 && ["ey", "ew", "ex"].iter().any(|begin| token.starts_with(begin))
}

/// A signed token (JWS, compact form).
#[derive(Debug)]
pub(super) struct Jws<'a> {
    pub(super) algorithm: String,
    pub(super) kid: Option<String>,
    pub(super) typ: Option<String>,
    pub(super) claims: Claims,
    /// What the signature covers.
    pub(super) signed: &'a [u8],
    /// The signature, in base64.
    pub(super) signature: &'a str,
}

impl<'a> Jws<'a> {
    pub(super) fn read(token: &'a str) -> Result<Self, Bad> {
        let malformed = || Bad::new("the token is malformed");
        let (signed, signature) = token.rsplit_once('.').ok_or_else(malformed)?;
        let (header, claims) = signed.split_once('.').ok_or_else(malformed)?;
        let (header, claims) = (object(header)?, object(claims)?);
        // RFC 7515 §4.1.11: no extension is understood here, so none may be critical. `b64` is one of them.
        if header.text("alg").is_none() || header.get("crit").is_some() || header.get("b64").is_some() {
            return Err(Bad::new("the token's header is not accepted"));
        }
        let text = |name: &str| match header.get(name) {
            None => Ok(None),
            Some(Value::String(text)) if text.len() <= 512 => Ok(Some(text.clone())),
            Some(_) => Err(Bad::new("the token's header is not accepted")),
        };
        URL_SAFE_NO_PAD.decode(signature).map_err(|_| malformed())?;
        // `jwk`, `jku`, `x5u` and `x5c` name keys of the sender's choice and are not looked at.
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

/// JSON in which no object has two members of one name: two readers would read two tokens. serde_json bounds
/// the depth.
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
                return Err(A::Error::custom("a member stands twice"));
            }
        }
        Ok(Value::Object(object))
    }
}
