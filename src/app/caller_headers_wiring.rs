//! What the fields that tell agents who calls (`caller_headers`) need of other sections: the claims that authentication
//! keeps, the key that signs tokens, and names that no other setting uses.

use crate::{
    config::GatewayConfig,
    directory::AgentDirectory,
    gateway::CallerTokenSigner,
    transport::{CallerHeadersConfig, TransportConfig, is_same_header},
};
use std::{collections::BTreeSet, sync::Arc};

/// Maximum number of claims that all agents together are told: the cache of verified tokens keeps them.
const MAX_TOLD_CLAIMS: usize = 64;

/// Returns the settings of agents, each with its path.
fn all_settings(file: &GatewayConfig) -> impl Iterator<Item = (String, &TransportConfig)> {
    let rules = file.agents.rules.iter().enumerate();
    let rules = rules.map(|(at, rule)| (format!("agents.rules[{at}].settings"), &rule.settings));
    [("agents.defaults".to_owned(), &file.agents.defaults)].into_iter().chain(rules)
}

fn all_caller_headers(file: &GatewayConfig) -> impl Iterator<Item = (String, &CallerHeadersConfig)> {
    all_settings(file).filter_map(|(path, settings)| Some((path, settings.caller_headers.as_ref()?)))
}

/// Returns the claims that agents are told.
pub(super) fn told_claims(file: &GatewayConfig) -> Arc<[Arc<str>]> {
    let claims: BTreeSet<&str> = all_caller_headers(file).flat_map(|(_, fields)| fields.claims()).collect();
    claims.into_iter().map(Arc::from).collect()
}

/// Builds the signer of the tokens, which uses the directory's signing key.
///
/// # Errors
/// A token is configured, and the directory has no key or no URL.
pub(super) fn build_token_signer(
    file: &GatewayConfig,
    directory: &AgentDirectory,
) -> Result<Option<Arc<CallerTokenSigner>>, Vec<String>> {
    let Some((path, _)) = all_caller_headers(file).find(|(_, fields)| fields.has_token()) else { return Ok(None) };
    match (&directory.signing_key, &directory.config.external_url) {
        (Some(key), Some(issuer)) => Ok(Some(Arc::new(CallerTokenSigner::new(Arc::clone(key), issuer)))),
        _ => Err(vec![format!(
            "{path}.caller_headers: a token needs directory.signing_key and directory.external_url (it is signed)"
        )]),
    }
}

/// Returns the fields whose names another setting uses, of whichever agents: rules apply together.
pub(super) fn check_caller_headers(file: &GatewayConfig) -> Vec<String> {
    let mut used: Vec<(String, &str)> = Vec::new();
    for (path, settings) in all_settings(file) {
        let credential = settings.credential.iter();
        used.extend(credential.map(|credential| (format!("{path}.credential.header"), credential.header.as_str())));
        let forwarded = settings.forwarded_headers.iter().flatten();
        used.extend(forwarded.map(|name| (format!("{path}.forwarded_headers"), name.as_str())));
    }
    for (at, rule) in file.agents.rules.iter().enumerate() {
        let session = rule.api.iter().filter_map(|api| api.session.as_ref()?.header.as_deref());
        used.extend(session.map(|name| (format!("agents.rules[{at}].api.session.header"), name)));
    }
    let key_header = file.auth.api_keys.iter().map(|keys| ("auth.api_keys.header".to_owned(), keys.header.as_str()));
    used.extend(key_header);
    let mut problems = Vec::new();
    for (path, fields) in all_caller_headers(file) {
        for name in fields.0.keys() {
            if let Some((other, _)) = used.iter().find(|(_, used)| is_same_header(used, name)) {
                let name = name.escape_default();
                problems
                    .push(format!("{path}.caller_headers.{name}: {other} has this field too (choose another name)"));
            }
        }
    }
    let claims = told_claims(file).len();
    if claims > MAX_TOLD_CLAIMS {
        problems.push(format!("agents: all caller_headers together tell {claims} claims (at most {MAX_TOLD_CLAIMS})"));
    }
    problems
}
