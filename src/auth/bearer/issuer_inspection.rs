//! Inspection of the issuers of a configuration: whether tokens could be verified now. It fetches what the gateway
//! fetches, and keeps nothing.

use super::{
    jwks::{JwksLocation, KeyFetchError},
    token_introspector::{REQUEST_BOUNDS, form_encode},
};
use crate::{
    auth::config::{IntrospectionConfig, IssuerConfig},
    net::{FetchClient, FormRequest},
    signing::VerificationKey,
    values::{Secret, format_count, shown_url},
};

/// The token that is introspected: no server has issued it.
const UNKNOWN_TOKEN: &str = "gatepost-doctor";

/// Why the introspection endpoint cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntrospectionProblem {
    /// It does not answer, or not as RFC 7662 says.
    Unusable(String),
    /// It refuses the gateway's own credential.
    Refused(String),
}

/// Fetches the keys of an issuer, and returns how many of them the accepted algorithms can use.
///
/// # Errors
/// The keys cannot be fetched, or none of them is for an accepted algorithm.
pub async fn inspect_issuer(config: &IssuerConfig, client: &FetchClient) -> Result<usize, KeyFetchError> {
    let keys = JwksLocation::of_issuer(config).fetch_keys(client).await?;
    let is_usable = |key: &VerificationKey| config.algorithms.iter().any(|algorithm| key.matches(*algorithm, None));
    match keys.iter().filter(|key| is_usable(key)).count() {
        0 => Err(KeyFetchError::NoUsableKey(format!(
            "the issuer has {}, and none for an algorithm of {:?}",
            format_count(keys.len(), "key"),
            config.algorithms
        ))),
        usable => Ok(usable),
    }
}

/// Introspects a token that no server has issued.
///
/// # Errors
/// The endpoint does not say that the token is inactive.
pub async fn inspect_introspection(
    config: &IntrospectionConfig,
    client: &FetchClient,
) -> Result<(), IntrospectionProblem> {
    let secret = config.client_secret.load().map_err(IntrospectionProblem::Unusable)?;
    let (client_id, secret) = (form_encode(&config.client_id), Secret::new(form_encode(secret.expose())));
    let fields = [("token", UNKNOWN_TOKEN), ("token_type_hint", "access_token")];
    let form = FormRequest { fields: &fields, basic: Some((&client_id, &secret)) };
    let reply = client.post(&config.endpoint, &form, REQUEST_BOUNDS).await;
    let reply = reply.map_err(|why| IntrospectionProblem::Unusable(why.to_string()))?;
    let answer = format!("{}: responded with status {}", shown_url(&config.endpoint), reply.status);
    match reply.status {
        200 => {}
        // RFC 7662 §2.3, RFC 6749 §5.2.
        400 | 401 | 403 => return Err(IntrospectionProblem::Refused(answer)),
        _ => return Err(IntrospectionProblem::Unusable(answer)),
    }
    let body: serde_json::Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    match body.get("active") {
        Some(serde_json::Value::Bool(_)) => Ok(()),
        _ => Err(IntrospectionProblem::Unusable(format!(
            "{}: response has no boolean 'active'",
            shown_url(&config.endpoint)
        ))),
    }
}
