//! Wiring of the MQTT bridge: the configured brokers and agents, with their keys loaded.

use super::problem_paths::prefix_problems;
use crate::{config::GatewayConfig, mqtt_bridge::ResolvedBridgeConfig, mqtt_client::BrokerAddress};

/// Returns the settings of the MQTT bridge, one per broker.
///
/// # Errors
/// Every problem, by its path in the file.
pub(super) fn build_bridge_offers(file: &GatewayConfig) -> Result<Vec<ResolvedBridgeConfig>, Vec<String>> {
    let mut problems = Vec::new();
    let mut offers = Vec::with_capacity(file.mqtt_bridge.len());
    for (at, config) in file.mqtt_bridge.iter().enumerate() {
        problems.extend(prefix_problems(&format!("mqtt_bridge[{at}]"), config.problems()));
        if let (Ok(address), Ok(key)) = (BrokerAddress::parse(&config.url), config.api_key.load()) {
            offers.push(ResolvedBridgeConfig { address, config: config.clone(), key });
        }
    }
    if problems.is_empty() { Ok(offers) } else { Err(problems) }
}
