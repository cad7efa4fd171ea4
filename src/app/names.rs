//! Wiring of the resolver: one per configuration, kept across reloads while its settings are equal, so that its cache
//! survives.

use super::form::within;
use crate::{config::File, names::Resolver, net::AddressPolicy};
use std::sync::Arc;

/// Returns the resolver for this configuration.
///
/// # Errors
/// Every problem, by its path in the file.
pub(super) fn resolver(
    file: &File,
    policy: &AddressPolicy,
    before: Option<Arc<Resolver>>,
) -> Result<Arc<Resolver>, Vec<String>> {
    if let Some(before) = before.filter(|before| before.is_as(&file.resolver, &file.network)) {
        return Ok(before);
    }
    let problems = file.resolver.problems();
    if !problems.is_empty() {
        return Err(within("names", problems));
    }
    Resolver::new(&file.resolver, &file.network, policy).map(Arc::new).map_err(|whys| within("network", whys))
}
