//! Arguments and configuration of Envoy, with one worker.

use crate::proxy_settings::{API_KEY, CHECKED_PATH, ListenAddresses, ProxyMode, ProxySettings, RATE_LIMIT, write_file};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

pub(crate) fn add_arguments(command: &mut Command, folder: &Path, config: &Value) -> anyhow::Result<()> {
    let file = write_file(folder, "envoy.json", &config.to_string())?;
    command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "critical", "-c"]).arg(file);
    Ok(())
}

pub(crate) fn config(settings: &ProxySettings, mode: ProxyMode, addresses: ListenAddresses) -> Value {
    let max_connections = settings.connections;
    let tls = json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": typed_config("envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext", json!({
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
        "listeners": [listener("plain", addresses.plain, mode, None), listener("tls", addresses.tls, mode, Some(tls))],
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

fn listener(name: &str, address: SocketAddr, mode: ProxyMode, tls: Option<Value>) -> Value {
    let manager = typed_config(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        json!({
            "stat_prefix": "calls",
            "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": routes(mode) }] },
            "http_filters": http_filters(mode),
            "access_log": access_log(mode),
        }),
    );
    let filter = json!({ "name": "envoy.filters.network.http_connection_manager", "typed_config": manager });
    let mut chain = json!({ "filters": [filter] });
    if let (Some(tls), Some(fields)) = (tls, chain.as_object_mut()) {
        fields.insert("transport_socket".to_owned(), tls);
    }
    json!({ "name": name, "address": socket_address(address), "filter_chains": [chain] })
}

fn routes(mode: ProxyMode) -> Value {
    if mode != ProxyMode::Checked {
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

fn http_filters(mode: ProxyMode) -> Value {
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": typed_config("envoy.extensions.filters.http.router.v3.Router", json!({})),
    });
    if mode != ProxyMode::Checked {
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
        "typed_config": typed_config("envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit", limit),
    });
    json!([limit, router])
}

fn access_log(mode: ProxyMode) -> Value {
    if mode != ProxyMode::Checked {
        return json!([]);
    }
    json!([{
        "name": "envoy.access_loggers.file",
        "typed_config": typed_config("envoy.extensions.access_loggers.file.v3.FileAccessLog", json!({ "path": "/dev/null" })),
    }])
}

/// Adds the name of a message's type to the message.
fn typed_config(name: &str, mut message: Value) -> Value {
    if let Some(fields) = message.as_object_mut() {
        fields.insert("@type".to_owned(), json!(format!("type.googleapis.com/{name}")));
    }
    message
}

fn socket_address(address: SocketAddr) -> Value {
    json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } })
}
