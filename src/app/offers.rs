//! Wiring of the MQTT bridge: the configured brokers and agents, with their keys loaded.

use super::form::within;
use crate::{bridge::Offer, broker::Address, config::File};

/// Builds the settings of the MQTT bridge.
///
/// # Errors
/// Every problem, by its path in the file.
pub(super) fn offers(file: &File) -> Result<Vec<Offer>, Vec<String>> {
    let mut problems = Vec::new();
    let mut offers = Vec::with_capacity(file.mqtt_bridge.len());
    for (at, config) in file.mqtt_bridge.iter().enumerate() {
        problems.extend(within(&format!("bridge[{at}]"), config.problems()));
        if let (Ok(address), Ok(key)) = (Address::read(&config.url), config.api_key.load()) {
            offers.push(Offer { address, config: config.clone(), key });
        }
    }
    if problems.is_empty() { Ok(offers) } else { Err(problems) }
}
