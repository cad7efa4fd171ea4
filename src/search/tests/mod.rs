//! What is found, in which order, and what it costs to keep it findable.

mod quality;

use super::*;
use serde_json::Value;

/// Agents as AIDIP documents say them; each gets a digest of its own text.
fn agents(documents: &[Value]) -> Vec<Arc<Agent>> {
    documents.iter().map(agent).collect()
}

fn agent(document: &Value) -> Arc<Agent> {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, document.to_string().as_bytes());
    let digest = digest.as_ref().try_into().expect("SHA-256 has 32 bytes");
    Arc::new(Agent::from_document(document, digest).expect("a good document"))
}
