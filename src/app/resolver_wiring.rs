//! Wiring of the resolver. A reload keeps the resolver and its cache if the settings are equal.

use super::problem_paths::prefix_problems;
use crate::{config::GatewayConfig, net::AddressPolicy, resolver::UriResolver};
use std::sync::Arc;

/// Returns the resolver of a configuration: `previous` if its settings are equal, otherwise a new one.
///
/// # Errors
/// Every problem, by its path in the file.
pub(super) fn build_resolver(
    file: &GatewayConfig,
    policy: &AddressPolicy,
    previous: Option<Arc<UriResolver>>,
) -> Result<Arc<UriResolver>, Vec<String>> {
    if let Some(previous) = previous.filter(|previous| previous.has_config(&file.resolver, &file.network)) {
        return Ok(previous);
    }
    let problems = file.resolver.problems();
    if !problems.is_empty() {
        return Err(prefix_problems("resolver", problems));
    }
    UriResolver::new(&file.resolver, &file.network, policy)
        .map(Arc::new)
        .map_err(|problems| prefix_problems("network", problems))
}
