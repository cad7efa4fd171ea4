//! The table of all metrics: names, types, labels with what bounds their values, and meanings. Metrics are registered from
//! their rows, and `docs/metrics.md` is written from the table.

use super::metric_labels::{
    AgentDocumentState, ApiKeyState, AttemptResult, AuditEntryResult, CallBlame, CallbackResult, CertificateKind,
    ConnectionOutcome, EndpointState, FetchOutcome, LimitKind, PollOutcome, ResponseProtocol, ShadowRule, SpanResult,
    StatusClass, StoreConnectionState, StoreKind, StoredTaskState, TaskEnd, TlsHandshake, UpstreamConnection,
};

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    /// Returns the name in the formats of Prometheus.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A label, and what bounds the number of its values.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetricLabel {
    pub(super) name: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "for the documentation, which a test compares"))]
    pub(super) bound: LabelBound,
}

/// What bounds the values of a label.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "for the documentation, which a test compares"))]
pub(super) enum LabelBound {
    /// A sentence that holds for every metric with the label.
    Described(&'static str),
    /// These values.
    Values(&'static [&'static str]),
}

/// A row of the table: one metric.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetricRow {
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    pub(super) labels: &'static [MetricLabel],
    pub(super) help: &'static str,
}

impl MetricRow {
    /// Returns the names of the labels.
    pub(super) fn label_names(&self) -> Vec<&'static str> {
        self.labels.iter().map(|label| label.name).collect()
    }
}

const fn described(name: &'static str, bound: &'static str) -> MetricLabel {
    MetricLabel { name, bound: LabelBound::Described(bound) }
}

const fn values(name: &'static str, values: &'static [&'static str]) -> MetricLabel {
    MetricLabel { name, bound: LabelBound::Values(values) }
}

const AGENT: MetricLabel = described(
    "agent",
    "the ids of the first `metrics.max_agent_labels` agents that are called (1,000 by default, at most 100,000), `other` for all further ones, `-` for requests without an agent",
);
const OPERATION: MetricLabel = described(
    "operation",
    "the operations that an agent's document declares, at most 64 of an agent; `invoke` is the implied operation, `directory` a request that the gateway answers itself, `-` any other",
);
const CALLER_CLASS: MetricLabel = described(
    "caller_class",
    "`none`, the kinds of credential, and the first configured tiers: 16 values in all, never the name of a caller",
);
const CODE: MetricLabel = described("code", "`ok`, the [codes of errors](errors.md#codes), and `aborted`");
const BLAME: MetricLabel = values("blame", CallBlame::NAMES);
const LISTENER: MetricLabel =
    described("listener", "the `address` of each entry of `listeners`, as the configuration has it");
const SOURCE: MetricLabel = described("source", "the names of `agents.sources`");
const ISSUER: MetricLabel =
    described("issuer", "the `label` of each entry of `auth.bearer.issuers`, or its `issuer` without one");
const BROKER: MetricLabel = described(
    "broker",
    "host and port of the MQTT brokers that the configuration and the endpoints of agents name: the first 100, then `other`",
);
const STORE: MetricLabel = values("store", StoreKind::NAMES);

/// The values of the label `profile`.
pub(super) const BUILD_PROFILES: &[&str] = &["debug", "release"];
/// The values of the label `priority`.
pub(super) const PRIORITIES: &[&str] = &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
/// The labels of the counters of calls, in the order in which they are written.
const CALL_LABELS: &[MetricLabel] = &[AGENT, CODE, CALLER_CLASS, OPERATION, BLAME];

/// Defines the rows as constants, and the table of all of them.
macro_rules! metric_table {
    ($($section:literal { $($row:ident $kind:ident $name:literal $labels:expr, $help:literal;)* })*) => {
        $($(pub(super) const $row: MetricRow =
            MetricRow { name: $name, kind: MetricKind::$kind, labels: $labels, help: $help };)*)*

        /// All metrics, by the sections of the documentation.
        pub(super) const SECTIONS: &[(&str, &[MetricRow])] = &[$(($section, &[$($row),*])),*];
    };
}

metric_table! {
    "Calls" {
        CALLS Counter "gatepost_calls_total" CALL_LABELS, "Total number of calls, by outcome.";
        CALL_DURATION Histogram "gatepost_call_duration_seconds" &[AGENT, BLAME, values("status_class", StatusClass::NAMES)], "Time from the first byte received to the last byte sent.";
        UPSTREAM_DURATION Histogram "gatepost_upstream_duration_seconds" &[AGENT], "Time that the agent took for a call, to the last byte of its response.";
        GATEWAY_DURATION Histogram "gatepost_gateway_duration_seconds" &[AGENT], "Time up to the head of the response in which the gateway did not wait for the agent, of calls that reached it; with the reading of the request and the wait for a concurrency permit.";
        REQUEST_BYTES Counter "gatepost_request_body_bytes_total" &[AGENT], "Total length of the request bodies that were received.";
        RESPONSE_BYTES Counter "gatepost_response_body_bytes_total" &[AGENT], "Total length of the response bodies that were sent.";
        RESPONSES Counter "gatepost_responses_total" &[LISTENER, values("protocol", ResponseProtocol::NAMES), described("status", "the statuses of the [codes of errors](errors.md#codes), 101, 200 to 206, 304; `other` for any other status of an agent, `0` for none")], "Total number of responses to callers, by HTTP status.";
        IN_FLIGHT Gauge "gatepost_calls_in_flight" &[], "Calls in flight.";
        LIMITED Counter "gatepost_limited_requests_total" &[values("limit", LimitKind::NAMES), AGENT], "Total number of requests refused by a rate, quota or concurrency limit.";
        SHADOW Counter "gatepost_shadow_denials_total" &[values("rule", ShadowRule::NAMES), AGENT], "Total number of calls that a rule in shadow mode would have refused.";
        SHED Counter "gatepost_load_shed_requests_total" &[values("priority", PRIORITIES)], "Total number of requests refused by load shedding, by priority.";
        SHEDDING Gauge "gatepost_load_shed_level" &[], "Number of lowest priorities that are refused entirely, plus the refused fraction of the next.";
        WAITS Gauge "gatepost_run_queue_delay_seconds" &[], "How long the gateway's own work waits for a CPU core under load.";
        QUEUE_WAIT Histogram "gatepost_queue_wait_seconds" &[AGENT], "Time that calls waited for a concurrency permit, of calls that waited.";
        QUEUED Gauge "gatepost_calls_queued" &[AGENT], "Calls that wait for a concurrency permit.";
    }
    "Endpoints of agents" {
        ENDPOINTS Gauge "gatepost_endpoints" &[AGENT, values("state", EndpointState::NAMES)], "Endpoints of agents that were called, by state.";
        OPEN_BREAKERS Gauge "gatepost_circuit_breakers_open" &[AGENT], "Endpoints of an agent whose circuit breaker is open.";
        BREAKER_OPENS Counter "gatepost_circuit_breaker_opens_total" &[AGENT], "Total number of times a circuit breaker of an agent opened.";
        ADAPTIVE_LIMIT Gauge "gatepost_adaptive_concurrency_limit" &[AGENT], "Current adaptive concurrency limit of an agent.";
        ATTEMPTS Counter "gatepost_upstream_attempts_total" &[AGENT, values("result", AttemptResult::NAMES)], "Total number of tries to call an agent at one of its endpoints, by result.";
        RETRIES Counter "gatepost_upstream_retries_total" &[AGENT], "Total number of tries after the first one of a call.";
        UPSTREAM_CONNECTIONS Counter "gatepost_upstream_connections_total" &[AGENT, values("result", UpstreamConnection::NAMES)], "Total number of connections that HTTP calls got to an agent.";
        CONNECT_DURATION Histogram "gatepost_upstream_connect_duration_seconds" &[AGENT], "Time of name resolution, TCP and TLS for the connections that were opened.";
    }
    "Connections of callers" {
        OPEN Gauge "gatepost_connections_open" &[LISTENER], "Open connections of callers.";
        CONNECTIONS Counter "gatepost_connections_total" &[LISTENER, values("result", ConnectionOutcome::NAMES)], "Total number of connections of callers, by result.";
        TLS_HANDSHAKES Counter "gatepost_tls_handshakes_total" &[LISTENER, values("version", TlsHandshake::NAMES)], "Total number of TLS handshakes with callers, by the version of TLS.";
    }
    "Certificates, keys and tokens" {
        CERTIFICATE_EXPIRATION Gauge "gatepost_certificate_expiration_timestamp_seconds" &[values("kind", CertificateKind::NAMES), described("name", "the `address` of a listener, or the name, without its folder, of a certificate file that the configuration names")], "Time at which a certificate in use expires.";
        CERTIFICATE_FAILURES Counter "gatepost_certificate_reload_failures_total" &[LISTENER], "Total number of changed certificates of a listener that were rejected.";
        API_KEYS Gauge "gatepost_api_keys" &[values("state", ApiKeyState::NAMES)], "API keys, by state.";
        API_KEY_EXPIRATION Gauge "gatepost_api_key_next_expiration_timestamp_seconds" &[], "Time at which the next valid API key expires; absent if none expires.";
        REVOCATIONS Gauge "gatepost_revocations" &[], "Revoked API keys and tokens that this gateway knows.";
        UNPUBLISHED_REVOCATIONS Gauge "gatepost_unpublished_revocations" &[], "Revocations in force at this gateway that are not in the shared state yet. 0 without a shared state.";
        REVOCATIONS_EXCHANGED Gauge "gatepost_revocations_last_exchange_timestamp_seconds" &[], "Time at which revocations were last exchanged with the shared state; absent without one.";
        JWKS_SUCCESS Gauge "gatepost_jwks_last_fetch_success_timestamp_seconds" &[ISSUER], "Time at which the keys of an issuer were last fetched.";
        JWKS_FETCHES Counter "gatepost_jwks_fetches_total" &[ISSUER, values("result", FetchOutcome::NAMES)], "Total number of fetches of an issuer's keys, by result.";
    }
    "Agents and their sources" {
        AGENTS Gauge "gatepost_agents" &[values("state", AgentDocumentState::NAMES)], "Agents, by state.";
        PARTLY_CHECKED Gauge "gatepost_agents_partly_checked" &[], "Agents that are served without a keyword of their schemas that cannot be in force (`contract.unsupported`).";
        SOURCE_AGE Gauge "gatepost_source_age_seconds" &[SOURCE], "Time since the last successful poll of a source of agents.";
        SOURCE_AGENTS Gauge "gatepost_source_agents" &[SOURCE], "Agents from a source.";
        SOURCE_READ Gauge "gatepost_source_read" &[SOURCE], "Whether a source was read once since the start, or from disk (1 or 0).";
        SOURCE_PENDING Gauge "gatepost_source_pending_removals" &[SOURCE], "Agents whose removal the loss guard holds.";
        SOURCE_POLLS Counter "gatepost_source_polls_total" &[SOURCE, values("outcome", PollOutcome::NAMES)], "Total number of polls of a source of agents, by outcome.";
    }
    "Tasks, callbacks, stores and brokers" {
        TASKS Gauge "gatepost_tasks_running" &[], "Tasks running on this gateway.";
        TASKS_STORED Gauge "gatepost_tasks_stored" &[values("state", StoredTaskState::NAMES)], "Tasks in the store, of all gateways that share it.";
        TASKS_ENDED Counter "gatepost_tasks_total" &[values("outcome", TaskEnd::NAMES)], "Total number of tasks that ended, by outcome.";
        TASK_DURATION Histogram "gatepost_task_duration_seconds" &[values("outcome", TaskEnd::NAMES)], "Time from the start of a task to its end.";
        CALLBACKS Counter "gatepost_callbacks_total" &[values("result", CallbackResult::NAMES)], "Total number of attempts to deliver a callback, by result.";
        CALLBACKS_PENDING Gauge "gatepost_callbacks_pending" &[], "Callbacks in the store that are not delivered yet, of all gateways that share it.";
        CALLBACK_DURATION Histogram "gatepost_callback_delivery_duration_seconds" &[], "Time of one attempt to deliver a callback.";
        STORE_DURATION Histogram "gatepost_store_operation_duration_seconds" &[STORE], "Time of one operation of a store.";
        STORE_FAILURES Counter "gatepost_store_operation_failures_total" &[STORE], "Total number of operations of a store that failed.";
        STORE_UP Gauge "gatepost_store_up" &[STORE], "Whether the last operation of a store succeeded (1 or 0).";
        STATE_GATEWAYS Gauge "gatepost_state_gateways" &[], "Gateways that share the state and were alive at the last heartbeat. 0 without a shared state.";
        STORE_CONNECTIONS Gauge "gatepost_store_connections" &[STORE, values("state", StoreConnectionState::NAMES)], "Connections to the PostgreSQL database of a store, by state.";
        BROKER_CONNECTED Gauge "gatepost_broker_connected" &[BROKER], "Whether the gateway has a connection to an MQTT broker (1 or 0).";
    }
    "The process" {
        READY Gauge "gatepost_ready" &[], "Whether the gateway is ready for calls (1 or 0), as /readyz.";
        DRAINING Gauge "gatepost_draining" &[], "Whether the gateway is stopping and lets its calls finish (1 or 0).";
        CONFIG_OK Gauge "gatepost_config_last_reload_successful" &[], "Whether the last load of the configuration succeeded (1 or 0).";
        CONFIG_LOADED Gauge "gatepost_config_last_reload_success_timestamp_seconds" &[], "Time of the last successful configuration load.";
        BUILD Gauge "gatepost_build_info" &[described("version", "that of the gateway: one value"), described("rust_version", "that of the compiler: one value"), values("profile", BUILD_PROFILES)], "The version and the build of the gateway; always 1.";
        MEMORY_LIMIT Gauge "gatepost_memory_limit_bytes" &[], "Memory that the process may use: the smallest limit of its control groups (the container, the unit), or the memory of the machine.";
        RUNTIME_THREADS Gauge "gatepost_runtime_threads" &[], "Threads that serve calls.";
        RUNTIME_BUSY Counter "gatepost_runtime_busy_seconds_total" &[], "Total time in which the threads that serve calls were busy.";
        DROPPED Counter "gatepost_access_log_dropped_entries_total" &[], "Total number of access-log entries that were not written.";
        AUDIT_ENTRIES Counter "gatepost_audit_entries_total" &[values("result", AuditEntryResult::NAMES)], "Total number of entries of the audit log, by result.";
        AUDIT_WAITING Gauge "gatepost_audit_entries_waiting" &[], "Entries that wait because the audit log cannot be written.";
        SPANS Counter "gatepost_spans_total" &[values("result", SpanResult::NAMES)], "Total number of spans of recorded traces, by result.";
        EVENTS Counter "gatepost_events_total" &[described("event", "a fixed list of events: see the table of events below")], "Total number of non-call events.";
        PROCESS_CPU Counter "process_cpu_seconds_total" &[], "Total user and system CPU time spent in seconds.";
        PROCESS_FDS Gauge "process_open_fds" &[], "Number of open file descriptors.";
        PROCESS_MAX_FDS Gauge "process_max_fds" &[], "Maximum number of open file descriptors.";
        PROCESS_VIRTUAL Gauge "process_virtual_memory_bytes" &[], "Virtual memory size in bytes.";
        PROCESS_RESIDENT Gauge "process_resident_memory_bytes" &[], "Resident memory size in bytes.";
        PROCESS_START Gauge "process_start_time_seconds" &[], "Start time of the process since unix epoch in seconds.";
        PROCESS_THREADS Gauge "process_threads" &[], "Number of OS threads in the process.";
    }
}
