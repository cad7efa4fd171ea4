//! Arguments and configuration of Envoy, with one worker.

use crate::proxy::{CHECKED_PATH, Fronts, API_KEY, RATE_LIMIT, Setting, Work, written};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

pub(crate) fn arguments(command: &mut Command, folder: &Path, config: &Value) -> anyhow::Result<()> {
    let file = written(folder, "envoy.json", &config.to_string())?;
    command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "critical", "-c"]).arg(file);
    Ok(())
}

pub(crate) fn config(settings: &Setting, mode: Work, addresses: Fronts) -> Value {
    let max_connections = settings.connections;
    let tls = json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": typed("envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext", json!({
            "common_tls_context": {
                "alpn_protocols": ["h2", "http/1.1"],
                "tls_certificates": [{
                    "certificate_chain": { "filename": settings.certificate.chain },
                    "private_key": { "filename": settings.certificate.key },
                }],
            },
        })),
    });
    json!({ "static_resources": {
        "listeners": [listener("plain", addresses.plain, (mode, None)), listener("tls", addresses.tls, (mode, Some(tls)))],
        "clusters": [{
            "name": "agent",
            "type": "STATIC",
            "connect_timeout": "5s",
            // The defaults are too low for thousands of streams.
            "circuit_breakers": {
                "thresholds": [{
                    "max_connections": max_connections,
                    "max_pending_requests": max_connections,
                    "max_requests": max_connections,
                }],
            },
            "load_assignment": {
                "cluster_name": "agent",
                "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": socket_address(settings.agent) } }] }],
            },
        }],
    }})
}

fn listener(name: &str, address: SocketAddr, (mode, tls): (Work, Option<Value>)) -> Value {
    let manager = typed(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        json!({
            "stat_prefix": "calls",
            "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": routes(mode) }] },
            "http_filters": filters(mode),
            "access_log": log(mode),
        }),
    );
    let filter = json!({ "name": "envoy.filters.network.http_connection_manager", "typed_config": manager });
    let mut chain = json!({ "filters": [filter] });
    if let (Some(tls), Some(fields)) = (tls, chain.as_object_mut()) {
        fields.insert("transport_socket".to_owned(), tls);
    }
    json!({ "name": name, "address": socket_address(address), "filter_chains": [chain] })
}

fn routes(mode: Work) -> Value {
    if mode != Work::Check {
        return json!([{ "match": { "prefix": "/" }, "route": { "cluster": "agent", "timeout": "0s" } }]);
    }
    let key_header = json!({ "name": "x-api-key", "string_match": { "exact": API_KEY } });
    json!([
        {
            "match": { "prefix": CHECKED_PATH, "headers": [key_header] },
            "route": { "cluster": "agent", "timeout": "0s", "prefix_rewrite": "/invoke" },
        },
        { "match": { "prefix": "/" }, "direct_response": { "status": 401 } },
    ])
}

fn filters(mode: Work) -> Value {
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": typed("envoy.extensions.filters.http.router.v3.Router", json!({})),
    });
    if mode != Work::Check {
        return json!([router]);
    }
    let always = json!({ "default_value": { "numerator": 100, "denominator": "HUNDRED" } });
    let limit = json!({
        "stat_prefix": "limit",
        "token_bucket": { "max_tokens": RATE_LIMIT, "tokens_per_fill": RATE_LIMIT, "fill_interval": "1s" },
        "filter_enabled": always,
        "filter_enforced": always,
    });
    let limit = json!({
        "name": "envoy.filters.http.local_ratelimit",
        "typed_config": typed("envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit", limit),
    });
    json!([limit, router])
}

fn log(mode: Work) -> Value {
    if mode != Work::Check {
        return json!([]);
    }
    json!([{
        "name": "envoy.access_loggers.file",
        "typed_config": typed("envoy.extensions.access_loggers.file.v3.FileAccessLog", json!({ "path": "/dev/null" })),
    }])
}

/// Adds the name of a message's type to the message.
fn typed(name: &str, mut message: Value) -> Value {
    if let Some(fields) = message.as_object_mut() {
        fields.insert("@type".to_owned(), json!(format!("type.googleapis.com/{name}")));
    }
    message
}

fn socket_address(address: SocketAddr) -> Value {
    json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } })
}
