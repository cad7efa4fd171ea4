//! Requests of commands to the admin listener of a running gateway.

use super::{health_command::reachable_address, resolve_command::CommandError};
use crate::{
    config::OperatorAddresses,
    net::{AddressPolicy, FetchClient, NetworkConfig},
    values::SecretRef,
};
use http::HeaderName;
use serde_json::Value;
use std::{path::Path, sync::Arc};

/// Returns the URL of the admin listener: the one that was named, or that of the configuration.
pub(super) fn admin_url(config: &Path, url: Option<&str>) -> Result<String, CommandError> {
    if let Some(url) = url {
        return Ok(url.trim_end_matches('/').to_owned());
    }
    let usage = |why| CommandError::Usage(format!("{}: {why}", config.display()));
    let addresses = OperatorAddresses::read(config).map_err(|why| usage(why.to_string()))?;
    let address = reachable_address(addresses.admin()).map_err(usage)?;
    Ok(format!("http://{address}"))
}

/// Returns a client that sends the key of an operator.
pub(super) fn admin_client(operator_key: Option<&SecretRef>) -> Result<FetchClient, CommandError> {
    // The operator names the address, which may be on any machine.
    let config = NetworkConfig { allow_plaintext: true, ..NetworkConfig::default() };
    let client = FetchClient::build(&config, Arc::new(AddressPolicy::default()));
    let client = client.map_err(|problems| CommandError::Failed(problems.join("\n")))?;
    let Some(key) = operator_key else { return Ok(client) };
    let usage = |why: &str| CommandError::Usage(format!("--operator-key: {why}"));
    let key = key.load().map_err(|why| usage(&why))?;
    client.with_credential(HeaderName::from_static("x-api-key"), &key).map_err(|why| usage(&why.to_string()))
}

/// Returns the message of an error in an answer of the listener; `absent` if it has none.
pub(super) fn error_message<'a>(answer: Option<&'a Value>, absent: &'a str) -> &'a str {
    let error = answer.and_then(|answer| answer.get("error"));
    error.and_then(|error| error.get("message")?.as_str()).unwrap_or(absent)
}
