//! Wiring of the resolver: one per configuration, kept across reloads while its settings are equal, so that its cache
//! survives.

use super::config_checks::prefix_problems;
use crate::{config::GatewayConfig, net::AddressPolicy, resolver::UriResolver};
use std::sync::Arc;

/// Returns the resolver for this configuration.
///
/// # Errors
/// Every problem, by its path in the file.
pub(super) fn build_resolver(
    file: &GatewayConfig,
    policy: &AddressPolicy,
    before: Option<Arc<UriResolver>>,
) -> Result<Arc<UriResolver>, Vec<String>> {
    if let Some(before) = before.filter(|before| before.has_config(&file.resolver, &file.network)) {
        return Ok(before);
    }
    let problems = file.resolver.problems();
    if !problems.is_empty() {
        return Err(prefix_problems("resolver", problems));
    }
    UriResolver::new(&file.resolver, &file.network, policy)
        .map(Arc::new)
        .map_err(|whys| prefix_problems("network", whys))
}
