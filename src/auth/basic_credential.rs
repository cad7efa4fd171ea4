//! HTTP Basic (RFC 7617) on the pages for callers. A browser sends no header field of its own, so the password stands for
//! the credential that a caller would send: an API key or a bearer token. The user name is ignored.

use super::authenticator::InvalidCredential;
use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, header};

/// Maximum length of a Basic credential, in bytes: a token of the maximum length, in Base64, with a user name.
const MAX_LENGTH: usize = 24 << 10;

/// Beginning of API keys.
const API_KEY_PREFIX: &str = "gp_";

/// Returns the password of the request's Basic credential; `None` if the request has no `Authorization`, several, or one
/// of another scheme.
///
/// # Errors
/// The credential is malformed, or has no password that can be an API key or a token.
pub(super) fn basic_password(headers: &HeaderMap) -> Result<Option<String>, InvalidCredential> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Ok(None) };
    let bytes = value.as_bytes();
    let (scheme, rest) = bytes.split_at(bytes.len().min(5));
    if !scheme.eq_ignore_ascii_case(b"basic") || rest.first().is_some_and(|next| *next != b' ') {
        return Ok(None);
    }
    let malformed = || InvalidCredential::new("the Basic credential is malformed");
    let encoded = rest.trim_ascii();
    if encoded.len() > MAX_LENGTH {
        return Err(malformed());
    }
    let decoded = STANDARD.decode(encoded).map_err(|_| malformed())?;
    let text = String::from_utf8(decoded).map_err(|_| malformed())?;
    let (_, password) = text.split_once(':').ok_or_else(malformed)?;
    if password.is_empty() || !password.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(InvalidCredential::new("the password is neither an API key nor a bearer token"));
    }
    Ok(Some(password.to_owned()))
}

/// Returns whether a password is an API key by its form.
pub(super) fn is_api_key(password: &str) -> bool {
    password.starts_with(API_KEY_PREFIX)
}
