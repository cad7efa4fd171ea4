//! Wiring of the bridge: what the configuration offers on brokers, with its keys read.

use super::form::within;
use crate::{bridge::Offer, broker::Address, config::File};

/// What is offered on brokers.
///
/// # Errors
/// Every problem, by its path.
pub(super) fn offers(file: &File) -> Result<Vec<Offer>, Vec<String>> {
    let mut problems = Vec::new();
    let mut offers = Vec::with_capacity(file.bridge.len());
    for (at, config) in file.bridge.iter().enumerate() {
        problems.extend(within(&format!("bridge[{at}]"), config.problems()));
        if let (Ok(address), Ok(key)) = (Address::read(&config.url), config.key.load()) {
            offers.push(Offer { address, config: config.clone(), key });
        }
    }
    if problems.is_empty() { Ok(offers) } else { Err(problems) }
}
