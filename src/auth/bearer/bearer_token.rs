//! The bearer token of a request, before it is verified.

use crate::{
    agent::AuthenticationMethod,
    auth::authenticator::{Challenge, CredentialDescription, InvalidCredential},
};
use http::{HeaderMap, header};

/// Maximum length of a token; longer ones are refused before they are hashed.
const MAX_TOKEN_BYTES: usize = 16 << 10;

/// Describes bearer tokens of every form.
pub(super) fn describe_bearer_token() -> CredentialDescription {
    CredentialDescription {
        method: AuthenticationMethod::Bearer,
        header: Some(header::AUTHORIZATION),
        may_be_bearer: false,
        challenge: Some(Challenge { scheme: "Bearer", parameter: None, has_error_parameters: true }),
        is_offered: true,
    }
}

/// Returns the token in `Authorization`, if the scheme is `Bearer`.
pub(super) fn bearer_token(headers: &HeaderMap) -> Result<Option<&str>, InvalidCredential> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(None);
    };
    let malformed = || InvalidCredential::new("the token is malformed");
    let bytes = value.as_bytes();
    let (scheme, rest) = bytes.split_at(bytes.len().min(6));
    if !scheme.eq_ignore_ascii_case(b"bearer") || rest.first().is_some_and(|next| *next != b' ') {
        return Ok(None);
    }
    let token = std::str::from_utf8(rest).map_err(|_| malformed())?.trim_matches(' ');
    // RFC 6750 §2.1: b64token. A fold has no early exit, so that the compiler vectorizes the loop.
    let is_token_byte = |b: u8| matches!(b, b'A'..=b'Z' | b'a'..=b'z' | b'-'..=b'9' | b'_' | b'~' | b'+' | b'=');
    let is_b64token = |token: &str| token.bytes().fold(true, |valid, b| valid & is_token_byte(b));
    if !token.is_empty() && token.len() <= MAX_TOKEN_BYTES && is_b64token(token) {
        Ok(Some(token))
    } else {
        Err(malformed())
    }
}

/// Returns whether a token begins like a JWT, whose header is a JSON object in base64url.
pub(super) fn begins_like_jwt(token: &str) -> bool {
    ["ey", "ew", "ex"].iter().any(|begin| token.starts_with(begin))
}

/// Returns whether a token is a JWT: it begins like one and has three parts. A JWT is never handled as an opaque token.
pub(in crate::auth) fn is_jwt(token: &str) -> bool {
    begins_like_jwt(token) && token.bytes().filter(|b| *b == b'.').count() == 2
}
