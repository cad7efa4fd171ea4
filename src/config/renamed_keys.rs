//! Configuration keys that were renamed before the first release: the refusal of a former name has the current one.

/// The path of a section in current names, with `[]` for any item of a list, and its renamed keys, each with its former
/// and its current name. A current name with a dot is a key of a nested section.
type RenamedSectionKeys = (&'static str, &'static [(&'static str, &'static str)]);

const RENAMED: &[RenamedSectionKeys] = &[
    ("", &[("listen", "listeners"), ("names", "resolver"), ("bridge", "mqtt_bridge"), ("local", "local_runtimes")]),
    ("listeners[]", &[("insecure_plaintext", "allow_plaintext")]),
    (
        "connections",
        &[
            ("connections", "max_connections"),
            ("tls_handshake", "tls_handshake_timeout"),
            ("header_deadline", "header_timeout"),
            ("idle", "idle_timeout"),
            ("body_idle", "body_idle_timeout"),
            ("max_head", "max_header_size"),
            ("requests_per_connection", "max_requests_per_connection"),
            ("h2_streams", "max_http2_streams"),
        ],
    ),
    (
        "websocket",
        &[
            ("origins", "allowed_origins"),
            ("max_message", "max_message_size"),
            ("idle", "idle_timeout"),
            ("ping", "ping_interval"),
            ("pong", "pong_timeout"),
            ("lifetime", "max_connection_age"),
            ("end", "end_marker"),
        ],
    ),
    (
        "agents",
        &[
            ("from", "sources"),
            ("poll", "poll_interval"),
            ("max_stream", "max_streamed_body_size"),
            ("stream_keep_alive", "sse_keep_alive_interval"),
        ],
    ),
    (
        "agents.sources[]",
        &[
            ("poll", "poll_interval"),
            ("lazy", "on_demand"),
            ("timeout", "fetch_timeout"),
            ("max_size", "max_response_size"),
            ("stale_after", "max_staleness"),
            ("hold_loss", "loss_guard.threshold"),
            ("hold_for", "loss_guard.confirm_after"),
            ("publisher_keys", "publisher_jwks"),
            ("require_signed", "require_signature"),
        ],
    ),
    ("agents.sources[].mqtt", &[("insecure", "allow_plaintext"), ("settle", "resync_timeout")]),
    ("agents.cache", &[("min", "min_ttl"), ("max", "max_ttl")]),
    ("agents.defaults", UPSTREAM),
    ("agents.defaults.websocket", UPSTREAM_WEBSOCKET),
    ("agents.defaults.matrix", UPSTREAM_MATRIX),
    ("agents.defaults.circuit_breaker", CIRCUIT_BREAKER),
    (
        "agents.rules[]",
        &[("rate", "rate_limit"), ("concurrency", "max_concurrency"), ("adaptive", "adaptive_concurrency")],
    ),
    ("agents.rules[].settings", UPSTREAM),
    ("agents.rules[].settings.websocket", UPSTREAM_WEBSOCKET),
    ("agents.rules[].settings.matrix", UPSTREAM_MATRIX),
    ("agents.rules[].settings.circuit_breaker", CIRCUIT_BREAKER),
    (
        "registry",
        &[
            ("store", "sqlite_file"),
            ("poll", "poll_interval"),
            ("most_documents", "max_documents_per_publisher"),
            ("most_in_all", "max_documents"),
            ("allow_sockets", "allowed_sockets"),
            ("insecure_plaintext", "allow_plaintext"),
        ],
    ),
    ("registry.publishers[]", &[("ids", "agents")]),
    ("directory", &[("public", "public_agents"), ("url", "external_url"), ("endpoints", "advertised_endpoints")]),
    (
        "network",
        &[("allow", "allowed_addresses"), ("allow_sockets", "allowed_sockets"), ("insecure", "allow_plaintext")],
    ),
    (
        "mqtt_bridge[]",
        &[
            ("key", "api_key"),
            ("most", "max_agents"),
            ("concurrency", "max_concurrency"),
            ("waiting", "max_queued"),
            ("remember", "deduplication_ttl"),
            ("remembered", "max_deduplication_ids"),
        ],
    ),
    ("mqtt_bridge[].mqtt", &[("insecure", "allow_plaintext")]),
    (
        "resolver",
        &[
            ("fallback", "https_fallback"),
            ("timeout", "resolution_timeout"),
            ("max_size", "max_document_size"),
            ("most_at_once", "max_concurrency"),
        ],
    ),
    (
        "resolver.cache",
        &[("size", "max_size"), ("usual", "default_ttl"), ("max", "max_ttl"), ("missing", "negative_ttl")],
    ),
    ("auth.bearer", &[("token_cache_size", "max_cached_tokens"), ("token_cache_for", "token_cache_ttl")]),
    (
        "auth.bearer.issuers[]",
        &[
            ("types", "token_types"),
            ("keys_refresh", "jwks_refresh_interval"),
            ("refetch_after", "min_jwks_refetch_interval"),
            ("keys_stale_after", "max_jwks_staleness"),
        ],
    ),
    ("auth.bearer.introspection", &[("cache_for", "cache_ttl")]),
    ("access", &[("unseen", "on_denied")]),
    ("cors", &[("origins", "allowed_origins"), ("headers", "allowed_headers"), ("hosts", "allowed_hosts")]),
    ("cors.pairing", &[("lifetime", "ttl")]),
    ("local_runtimes", &[("owner", "owner_uid"), ("longest_lease", "max_lease")]),
    (
        "delegation",
        &[
            ("required_of", "required_for"),
            ("trusted", "trusted_issuers"),
            ("lifetime", "ttl"),
            ("most_actors", "max_actors"),
        ],
    ),
    ("delegation.trusted_issuers[]", &[("keys", "jwks")]),
    (
        "limits",
        &[("shed_above", "max_scheduling_delay"), ("most_keys", "max_tracked_keys"), ("state", "quota_state_file")],
    ),
    (
        "limits.concurrency",
        &[
            ("per_agent", "max_per_agent"),
            ("least", "min_concurrency"),
            ("queue", "max_queued"),
            ("queue_wait", "queue_timeout"),
        ],
    ),
    (
        "tasks",
        &[
            ("store", "sqlite_file"),
            ("keep", "result_ttl"),
            ("poll", "poll_interval"),
            ("max_result", "max_result_size"),
            ("most_own", "max_tasks_per_caller"),
            ("most_in_all", "max_tasks"),
            ("most_running", "max_running"),
            ("lease", "lease_ttl"),
        ],
    ),
    ("tasks.resume", &[("size", "max_size"), ("events", "max_events"), ("most", "max_streams")]),
    ("tasks.callbacks", &[("timeout", "attempt_timeout"), ("give_up", "delivery_timeout")]),
    (
        "idempotency",
        &[("keep", "ttl"), ("most", "max_keys"), ("size", "max_size"), ("max_answer", "max_response_size")],
    ),
    ("contract", &[("max_body", "max_body_size")]),
    ("contract.batch", &[("concurrency", "max_concurrency")]),
    ("access_log", &[("to", "output")]),
    ("metrics", &[("most_agents", "max_agent_labels")]),
    (
        "shutdown",
        &[("drain", "drain_timeout"), ("delay", "listener_close_delay"), ("upgrade_socket", "handover_socket")],
    ),
];

const UPSTREAM: &[(&str, &str)] = &[
    ("insecure_plaintext", "allow_plaintext"),
    ("keep_alive", "idle_connection_timeout"),
    ("idle_connections", "max_idle_connections"),
    ("breaker", "circuit_breaker"),
    ("endpoints", "additional_endpoints"),
];

const UPSTREAM_WEBSOCKET: &[(&str, &str)] = &[
    ("frames", "framing"),
    ("document", "result_message"),
    ("end", "end_marker"),
    ("max_message", "max_message_size"),
    ("ping", "ping_interval"),
    ("pong", "pong_timeout"),
    ("check", "validate_messages"),
];

const UPSTREAM_MATRIX: &[(&str, &str)] = &[("room", "default_room"), ("join", "auto_join")];

const CIRCUIT_BREAKER: &[(&str, &str)] = &[("failures", "consecutive_failures"), ("open_for", "open_duration")];

/// Returns the current name of `key` in the section at `path`, if `key` is a former name. The path has the form
/// `agents.sources[0]`, in current names.
pub(super) fn current_name(path: &str, key: &str) -> Option<&'static str> {
    let (_, keys) = RENAMED.iter().find(|(section, _)| is_same_section(section, path))?;
    keys.iter().find(|(former, _)| *former == key).map(|(_, current)| *current)
}

/// Returns whether `path` is a path of `section`, with any list positions.
fn is_same_section(section: &str, path: &str) -> bool {
    let path_without_positions = path.split('[').enumerate().map(|(index, rest)| match index {
        0 => rest,
        _ => rest.trim_start_matches(|c: char| c.is_ascii_digit()),
    });
    section.split('[').eq(path_without_positions)
}

#[cfg(test)]
mod tests;
