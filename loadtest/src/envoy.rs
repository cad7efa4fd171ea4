//! Envoy, where it is installed, with one worker.

use crate::proxy::{CHECKED, Fronts, KEY, LIMIT, Setting, Work, written};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

pub(crate) fn arguments(command: &mut Command, folder: &Path, config: &Value) -> anyhow::Result<()> {
    let file = written(folder, "envoy.json", &config.to_string())?;
    command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "critical", "-c"]).arg(file);
    Ok(())
}

pub(crate) fn config(setting: &Setting, work: Work, fronts: Fronts) -> Value {
    let most = setting.connections;
    let tls = json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": typed("envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext", json!({
            "common_tls_context": {
                "alpn_protocols": ["h2", "http/1.1"],
                "tls_certificates": [{
                    "certificate_chain": { "filename": setting.certificate.chain },
                    "private_key": { "filename": setting.certificate.key },
                }],
            },
        })),
    });
    json!({ "static_resources": {
        "listeners": [listener("plain", fronts.plain, (work, None)), listener("tls", fronts.tls, (work, Some(tls)))],
        "clusters": [{
            "name": "agent",
            "type": "STATIC",
            "connect_timeout": "5s",
            // What it allows by itself is too little for thousands of streams.
            "circuit_breakers": {
                "thresholds": [{ "max_connections": most, "max_pending_requests": most, "max_requests": most }],
            },
            "load_assignment": {
                "cluster_name": "agent",
                "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address(setting.agent) } }] }],
            },
        }],
    }})
}

fn listener(name: &str, at: SocketAddr, (work, tls): (Work, Option<Value>)) -> Value {
    let calls = typed(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        json!({
            "stat_prefix": "calls",
            "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": routes(work) }] },
            "http_filters": filters(work),
            "access_log": log(work),
        }),
    );
    let filter = json!({ "name": "envoy.filters.network.http_connection_manager", "typed_config": calls });
    let mut chain = json!({ "filters": [filter] });
    if let (Some(tls), Some(fields)) = (tls, chain.as_object_mut()) {
        fields.insert("transport_socket".to_owned(), tls);
    }
    json!({ "name": name, "address": address(at), "filter_chains": [chain] })
}

fn routes(work: Work) -> Value {
    if work != Work::Check {
        return json!([{ "match": { "prefix": "/" }, "route": { "cluster": "agent", "timeout": "0s" } }]);
    }
    let known = json!({ "name": "x-api-key", "string_match": { "exact": KEY } });
    json!([
        {
            "match": { "prefix": CHECKED, "headers": [known] },
            "route": { "cluster": "agent", "timeout": "0s", "prefix_rewrite": "/invoke" },
        },
        { "match": { "prefix": "/" }, "direct_response": { "status": 401 } },
    ])
}

fn filters(work: Work) -> Value {
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": typed("envoy.extensions.filters.http.router.v3.Router", json!({})),
    });
    if work != Work::Check {
        return json!([router]);
    }
    let always = json!({ "default_value": { "numerator": 100, "denominator": "HUNDRED" } });
    let limit = json!({
        "stat_prefix": "limit",
        "token_bucket": { "max_tokens": LIMIT, "tokens_per_fill": LIMIT, "fill_interval": "1s" },
        "filter_enabled": always,
        "filter_enforced": always,
    });
    let limit = json!({
        "name": "envoy.filters.http.local_ratelimit",
        "typed_config": typed("envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit", limit),
    });
    json!([limit, router])
}

fn log(work: Work) -> Value {
    if work != Work::Check {
        return json!([]);
    }
    json!([{
        "name": "envoy.access_loggers.file",
        "typed_config": typed("envoy.extensions.access_loggers.file.v3.FileAccessLog", json!({ "path": "/dev/null" })),
    }])
}

/// A message with the name of its type.
fn typed(name: &str, mut message: Value) -> Value {
    if let Some(fields) = message.as_object_mut() {
        fields.insert("@type".to_owned(), json!(format!("type.googleapis.com/{name}")));
    }
    message
}

fn address(at: SocketAddr) -> Value {
    json!({ "socket_address": { "address": at.ip().to_string(), "port_value": at.port() } })
}
