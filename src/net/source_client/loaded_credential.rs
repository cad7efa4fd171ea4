//! Credential of a source, as loaded.

use super::{
    oauth_token_cache::TokenCache,
    source_credential::{SourceCredential, SourceHeader, bearer_value, sensitive_value},
};
use crate::net::FetchClient;
use http::{HeaderName, HeaderValue};

/// Loaded credential, added to each request to the source.
#[derive(Debug)]
pub(super) enum LoadedCredential {
    Absent,
    Header(HeaderName, HeaderValue),
    Tokens(Box<TokenCache>),
}

impl LoadedCredential {
    /// Loads the secrets of a credential.
    ///
    /// # Errors
    /// Returns every unusable part, by its path in the credential.
    pub(super) fn load(credential: &SourceCredential, client: &FetchClient) -> Result<Self, Vec<String>> {
        match (&credential.bearer, &credential.header, &credential.client_credentials) {
            (None, None, None) => Ok(Self::Absent),
            (Some(bearer), None, None) => {
                let value = bearer.load().and_then(|token| bearer_value(&token));
                let value = value.map_err(|error| vec![format!("bearer: {error}")])?;
                Ok(Self::Header(http::header::AUTHORIZATION, value))
            }
            (None, Some(header), None) => load_header(header).map_err(|problem| vec![format!("header.{problem}")]),
            (None, None, Some(credentials)) => {
                let with_field =
                    |errors: Vec<String>| errors.iter().map(|error| format!("client_credentials.{error}")).collect();
                TokenCache::load(credentials, client).map(Box::new).map(Self::Tokens).map_err(with_field)
            }
            _ => Err(vec!["bearer: only one of bearer, header and client_credentials can be set".to_owned()]),
        }
    }
}

fn load_header(header: &SourceHeader) -> Result<LoadedCredential, String> {
    let name = HeaderName::try_from(header.name.as_str()).map_err(|_| "name: is not a header name".to_owned())?;
    let reserved = ["host", "content-length", "transfer-encoding", "connection", "te", "upgrade"];
    if reserved.contains(&name.as_str()) {
        return Err(format!("name: '{name}' is set by the gateway itself (choose another header)"));
    }
    let secret = header.value.load().map_err(|error| format!("value: {error}"))?;
    Ok(LoadedCredential::Header(name, sensitive_value(secret.expose()).map_err(|error| format!("value: {error}"))?))
}
