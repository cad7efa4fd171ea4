//! Wiring of resolution: one resolver for a configuration, kept where nothing that matters to it has changed, so that
//! what it remembers outlives a reload.

use super::form::within;
use crate::{config::File, names::Resolver, net::AddressPolicy};
use std::sync::Arc;

/// Whoever resolves names under this configuration.
///
/// # Errors
/// Every problem, by its path in the file.
pub(super) fn resolver(
    file: &File,
    policy: &AddressPolicy,
    before: Option<Arc<Resolver>>,
) -> Result<Arc<Resolver>, Vec<String>> {
    if let Some(before) = before.filter(|before| before.is_as(&file.names, &file.network)) {
        return Ok(before);
    }
    let problems = file.names.problems();
    if !problems.is_empty() {
        return Err(within("names", problems));
    }
    Resolver::new(&file.names, &file.network, policy).map(Arc::new).map_err(|whys| within("network", whys))
}
