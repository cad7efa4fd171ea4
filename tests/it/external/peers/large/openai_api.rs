//! A server of OpenAI's API behind the gateway, called by OpenAI's own SDK: what agents as models cannot honour passes.

use crate::external::peers::{Peer, server::PeerServer};

const PEER: &str = "peers/openai_api";

/// Resources of the SDK that the preset does not list, as they are a provider's own.
const RESOURCES_THAT_DO_NOT_PASS: [&str; 15] = [
    "admin",
    "beta",
    "containers",
    "content_provenance_checks",
    "decisions",
    "evals",
    "fine_tuning",
    "live",
    "realtime",
    "safety",
    "skills",
    "uploads",
    "vector_stores",
    "videos",
    "webhooks",
];

#[tokio::test]
async fn r30_every_method_of_openais_sdk_works_with_a_server_of_its_api_through_the_gateway_if_the_preset_has_its_path()
{
    let server = PeerServer::start_script(PEER).await;
    let peer = Peer { name: PEER, server: &server, preset: "openai", endpoint: "/v1/chat/completions" };
    let [alone, through] = peer.run_client_twice("/v1").await;
    assert!(alone.lines().count() > 400, "{alone}");
    let refused: Vec<&str> = alone
        .lines()
        .zip(through.lines())
        .filter(|(alone, through)| alone != through)
        .map(|(_, through)| through)
        .collect();
    assert!(refused.iter().all(|line| line.ends_with(": NotFoundError 404")), "{refused:?}");
    let mut resources: Vec<&str> = refused.iter().map(|line| line.split('.').next().unwrap()).collect();
    resources.dedup();
    assert_eq!(resources, RESOURCES_THAT_DO_NOT_PASS);
}
