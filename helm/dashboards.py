"""The dashboards of the chart. `update` writes gatepost/files/dashboards/*.json from them; grafana.py explains the form."""
from grafana import GREEN, RED, YELLOW, Dashboard, Variable, graph, heatmap, stat, table, text

IS_BAD = ((GREEN, 0), (RED, 1))
IS_GOOD = ((RED, 0), (GREEN, 1))


def rate(metric, by="", select="", window="$__rate_interval"):
    grouping = f" by ({by})" if by else ""
    selector = "{@," + select + "}" if select else "{@}"
    return f"sum{grouping} (rate({metric}{selector}[{window}]))"


def quantile(q, metric, by="", select=""):
    return f"histogram_quantile({q}, {rate(metric + '_bucket', ', '.join(filter(None, ['le', by])), select)})"


def quantiles(metric, by="", select=""):
    legend = "".join(f" {{{{{label}}}}}" for label in by.split(", ") if label)
    return {f"p{name}{legend}": quantile(q, metric, by, select) for name, q in (("50", 0.5), ("90", 0.9), ("99", 0.99))}


def share(part, whole):
    """The share of one rate in another; 0 if neither has a call."""
    return f"({part} or vector(0)) / ({whole} > 0) or vector(0)"


def top(query):
    return f"topk(10, {query} > 0)"


def ratio(part, whole):
    return f"{part} / {whole}"


def budget_left(select):
    failed = rate("gatepost_calls_total", select=select + ',blame="agent"', window="30d")
    counted = rate("gatepost_calls_total", select=select + ',blame=~"none|agent"', window="30d")
    return f"1 - ({failed} or vector(0)) / (0.01 * {counted})"


# Calls that say something of agents and the gateway: refusals of callers and calls that callers abort are left out.
COUNTED = 'blame!~"caller|aborted"'

OVERVIEW = Dashboard(
    "overview",
    "Gatepost / Overview",
    "All gateways: whether they are ready, whose fault failures are, and how long calls take.",
    {
        "Now": [
            stat("Gateways", "none", "Gateways whose metrics Prometheus reads.", "count(gatepost_ready{@})", width=3),
            stat("Not ready", "none", "Gateways that are not ready, or drain.", "count(gatepost_ready{@} == 0) or vector(0)", *IS_BAD, width=3),
            stat("Calls", "reqps", "Calls per second, those that are refused included.", rate("gatepost_calls_total"), width=3),
            stat("In flight", "none", "Calls that are being answered, streams and WebSockets included.", "sum(gatepost_calls_in_flight{@})", width=3),
            stat("Failed by agents", "percentunit", "Share of calls that agents failed. Refusals of callers and aborted calls do not count.", share(rate("gatepost_calls_total", select='blame="agent"'), rate("gatepost_calls_total", select=COUNTED)), (GREEN, 0), (YELLOW, 0.01), (RED, 0.1), width=3),
            stat("Failed by the gateway", "percentunit", "Share of calls that the gateway failed: overload, and defects.", share(rate("gatepost_calls_total", select='blame="gateway"'), rate("gatepost_calls_total", select=COUNTED)), (GREEN, 0), (YELLOW, 0.001), (RED, 0.01), width=3),
            stat("p99 of succeeded calls", "s", "99 of 100 calls that succeed take at most this long.", quantile(0.99, "gatepost_call_duration_seconds", select='blame="none"'), width=3),
            stat("Agents", "none", "Agents that are served, on the gateway that knows most.", 'max(gatepost_agents{@,state="served"})', width=3),
        ],
        "Calls": [
            graph("Calls by blame", "reqps", "Who has to change something for the call to succeed; none is a success.", {"{{blame}}": rate("gatepost_calls_total", "blame")}, stack=True),
            graph("Failures by code", "reqps", "Failures of agents and the gateway. docs/errors.md has the codes.", {"{{code}}": rate("gatepost_calls_total", "code", 'blame=~"agent|gateway"')}, stack=True),
            graph("Refusals by code", "reqps", "Calls that callers are to blame for.", {"{{code}}": rate("gatepost_calls_total", "code", 'blame="caller"')}, stack=True),
            graph("HTTP status", "reqps", "Responses by the status that was sent; 0 is none, because the caller had left.", {"{{status}}": rate("gatepost_responses_total", "status")}, stack=True),
            graph("Protocols of callers", "reqps", "Responses by protocol and listener.", {"{{protocol}} {{listener}}": rate("gatepost_responses_total", "protocol, listener")}, stack=True),
            graph("Calls by class of callers", "reqps", "The tier of a caller, or its kind of credential.", {"{{caller_class}}": rate("gatepost_calls_total", "caller_class")}, stack=True),
        ],
        "Time": [
            graph("Succeeded calls", "s", "From the first byte received to the last byte sent, of calls that succeed. Quick refusals are not in it. Exemplars lead to traces.", quantiles("gatepost_call_duration_seconds", select='blame="none"'), exemplars=True),
            graph("Agents' part", "s", "What agents take of the calls that reach them.", quantiles("gatepost_upstream_duration_seconds")),
            graph("Gateway's own part", "s", "What the gateway adds to a call that reaches an agent.", quantiles("gatepost_gateway_duration_seconds")),
            graph("p99 by blame", "s", "Failures are quick if they are refused, and slow if they time out.", {"{{blame}}": quantile(0.99, "gatepost_call_duration_seconds", "blame")}),
            heatmap("All succeeded calls", "How many calls took how long.", rate("gatepost_call_duration_seconds_bucket", "le", 'blame="none"'), width=16),
        ],
        "Agents": [
            graph("Ten agents with most calls", "reqps", "Calls per second; other is the sum of the agents without a label of their own.", {"{{agent}}": top(rate("gatepost_calls_total", "agent"))}, link=True),
            graph("Ten agents with most failures", "reqps", "Calls per second that the agent failed.", {"{{agent}}": top(rate("gatepost_calls_total", "agent", 'blame="agent"'))}, link=True),
            graph("Ten slowest agents", "s", "p99 of the agent's part.", {"{{agent}}": top(quantile(0.99, "gatepost_upstream_duration_seconds", "agent"))}, link=True),
            graph("Circuit breakers open", "none", "Endpoints that the gateways do not call for the moment.", {"{{agent}}": "max by (agent) (gatepost_circuit_breakers_open{@}) > 0"}, link=True),
            graph("Agents with full queues", "reqps", "Calls refused because too many of the agent were in flight.", {"{{agent}} {{limit}}": top(rate("gatepost_limited_requests_total", "agent, limit", 'limit=~"concurrency|adaptive|share"'))}),
            graph("Retries", "reqps", "Attempts after the first of a call.", {"{{agent}}": top(rate("gatepost_upstream_retries_total", "agent"))}, link=True),
        ],
        "Traffic": [
            graph("Bytes of bodies", "Bps", "Bodies of requests and responses.", {"in": rate("gatepost_request_body_bytes_total"), "out": rate("gatepost_response_body_bytes_total")}),
            graph("Connections of callers", "none", "Open connections by listener.", {"{{listener}}": "sum by (listener) (gatepost_connections_open{@})"}, stack=True),
            graph("New connections", "cps", "Accepted and refused connections.", {"{{result}}": rate("gatepost_connections_total", "result")}, stack=True),
            graph("TLS handshakes", "cps", "By version; failed ones are in it.", {"{{version}}": rate("gatepost_tls_handshakes_total", "version")}, stack=True),
            graph("Refusals by limit", "reqps", "Requests that a rate, a quota, a share or a bound refused.", {"{{limit}}": rate("gatepost_limited_requests_total", "limit")}, stack=True),
            graph("Load shedding", "reqps", "Requests refused by priority, because the gateway has too little CPU.", {"priority {{priority}}": rate("gatepost_load_shed_requests_total", "priority")}, stack=True),
        ],
    },
)

A = 'agent="$agent"'
AGENT = Dashboard(
    "agent",
    "Gatepost / Agent",
    "One agent: its calls, failures, endpoints and limits.",
    {
        "Now": [
            stat("Calls", "reqps", "Calls per second.", rate("gatepost_calls_total", select=A)),
            stat("Failed by the agent", "percentunit", "Share of its calls that the agent failed, refusals of callers left out.", share(rate("gatepost_calls_total", select=A + ',blame="agent"'), rate("gatepost_calls_total", select=A + "," + COUNTED)), (GREEN, 0), (YELLOW, 0.01), (RED, 0.1)),
            stat("p99", "s", "99 of 100 calls that succeed take at most this long.", quantile(0.99, "gatepost_call_duration_seconds", select=A + ',blame="none"')),
            stat("Endpoints up", "none", "Endpoints that calls go to, on the gateway that knows most of them.", 'max(gatepost_endpoints{@,agent="$agent",state="up"})', *IS_GOOD),
            stat("Endpoints down", "none", "Endpoints with an open circuit breaker, on the gateway with most of them.", 'max(gatepost_endpoints{@,agent="$agent",state="down"})', *IS_BAD),
            stat("Error budget of 30 days", "percentunit", "What is left of the 1 % of calls that the agent may fail in 30 days. Below 0 it is spent.", budget_left(A), (RED, 0), (YELLOW, 0), (GREEN, 0.5)),
        ],
        "Calls": [
            graph("Calls by blame", "reqps", "Who has to change something for the call to succeed; none is a success.", {"{{blame}}": rate("gatepost_calls_total", "blame", A)}, stack=True),
            graph("Failures by code", "reqps", "All calls that did not succeed.", {"{{code}}": rate("gatepost_calls_total", "code", A + ',blame!="none"')}, stack=True),
            graph("Calls by operation", "reqps", "Operations of the agent's document.", {"{{operation}}": rate("gatepost_calls_total", "operation", A)}, stack=True),
            graph("Calls by class of callers", "reqps", "The tier of a caller, or its kind of credential.", {"{{caller_class}}": rate("gatepost_calls_total", "caller_class", A)}, stack=True),
            graph("Failures by operation", "reqps", "Calls that the agent failed.", {"{{operation}} {{code}}": rate("gatepost_calls_total", "operation, code", A + ',blame="agent"')}, stack=True),
            graph("Bytes of bodies", "Bps", "Bodies of its requests and responses.", {"in": rate("gatepost_request_body_bytes_total", select=A), "out": rate("gatepost_response_body_bytes_total", select=A)}),
        ],
        "Time": [
            graph("Succeeded calls", "s", "From the first byte received to the last byte sent. Exemplars lead to traces.", quantiles("gatepost_call_duration_seconds", select=A + ',blame="none"'), exemplars=True),
            graph("Failed calls", "s", "Calls that the agent failed: near 0 if it is not reached, at the timeout if it is too slow.", quantiles("gatepost_call_duration_seconds", select=A + ',blame="agent"'), exemplars=True),
            graph("Agent and gateway", "s", "p99 of the agent's part and of the gateway's own.", {"agent": quantile(0.99, "gatepost_upstream_duration_seconds", select=A), "gateway": quantile(0.99, "gatepost_gateway_duration_seconds", select=A)}),
            heatmap("All succeeded calls", "How many calls took how long.", rate("gatepost_call_duration_seconds_bucket", "le", A + ',blame="none"'), width=16),
            graph("p99 by status", "s", "By the class of the status that the caller got.", {"{{status_class}}": quantile(0.99, "gatepost_call_duration_seconds", "status_class", A)}),
        ],
        "Endpoints": [
            graph("Attempts by result", "reqps", "Every attempt at an endpoint, retries included.", {"{{result}}": rate("gatepost_upstream_attempts_total", "result", A)}, stack=True),
            graph("Retries", "reqps", "Attempts after the first of a call.", {"retries": rate("gatepost_upstream_retries_total", select=A)}),
            graph("Connections", "cps", "Connections to endpoints that were opened, taken from the pool, or failed.", {"{{result}}": rate("gatepost_upstream_connections_total", "result", A)}, stack=True),
            graph("Time to connect", "s", "Name resolution, TCP and TLS of opened connections.", quantiles("gatepost_upstream_connect_duration_seconds", select=A)),
            graph("Circuit breakers", "none", "Open breakers by gateway, and how often breakers opened in five minutes.", {"open, {{instance}}": 'gatepost_circuit_breakers_open{@,agent="$agent"}', "opened": 'sum(increase(gatepost_circuit_breaker_opens_total{@,agent="$agent"}[5m]))'}),
            graph("Endpoints", "none", "Endpoints by state and gateway.", {"{{state}} {{instance}}": 'gatepost_endpoints{@,agent="$agent"}'}),
        ],
        "Limits": [
            graph("Refusals by limit", "reqps", "Requests for this agent that a limit refused.", {"{{limit}}": rate("gatepost_limited_requests_total", "limit", A)}, stack=True),
            graph("Concurrency", "none", "The limit that the gateway has learnt, and the calls that wait for a permit.", {"limit, {{instance}}": 'gatepost_adaptive_concurrency_limit{@,agent="$agent"}', "waiting, {{instance}}": 'gatepost_calls_queued{@,agent="$agent"}'}),
            graph("Wait for a permit", "s", "Of the calls that waited.", quantiles("gatepost_queue_wait_seconds", select=A)),
        ],
    },
    (Variable("agent", "agent", 'gatepost_calls_total{namespace=~"$namespace",job=~"$job"}', many=False),),
)

CLASS = 'caller_class=~"$caller_class"'
CALLERS = Dashboard(
    "callers",
    "Gatepost / Callers and limits",
    "Classes of callers, what limits refuse, and the validity of keys and tokens.",
    {
        "One caller": [
            text(
                "Where one caller is found",
                "No metric has a label for a caller, because callers are many and some choose their own names. Metrics tell classes of callers apart: the tier of a caller, or its kind of credential (`key`, `bearer`, `certificate`, `anonymous`).\n\n"
                "One caller is found in the **access log**, in the fields `caller`, `agent`, `code`, `status` and `duration_ms`: "
                '`jq \'select(.caller == "key:team-a") | {time, agent, code, status, duration_ms, request_id}\'`. '
                "The callers with most refusals: `jq -r 'select(.code == \"RateLimited\") | .caller' | sort | uniq -c | sort -rn | head`. A caller with a tier of its own has a class of its own, if the tier is one of the first eleven.",
                height=6,
            ),
        ],
        "Classes of callers": [
            graph("Calls", "reqps", "Calls by class.", {"{{caller_class}}": rate("gatepost_calls_total", "caller_class", CLASS)}, stack=True),
            graph("Share that succeeds", "percentunit", "Succeeded calls of all calls of a class.", {"{{caller_class}}": ratio(rate("gatepost_calls_total", "caller_class", CLASS + ',blame="none"'), rate("gatepost_calls_total", "caller_class", CLASS))}),
            graph("Refusals", "reqps", "Calls that callers are to blame for, by code.", {"{{code}}": rate("gatepost_calls_total", "code", CLASS + ',blame="caller"')}, stack=True),
            graph("Rate limits and quotas", "reqps", "429 by class.", {"{{caller_class}}": rate("gatepost_calls_total", "caller_class", CLASS + ',code="RateLimited"')}, stack=True),
            graph("Denied", "reqps", "401 and 403 by class.", {"{{code}} {{caller_class}}": rate("gatepost_calls_total", "code, caller_class", CLASS + ',code=~"Unauthorized|PermissionDenied"')}, stack=True),
            graph("Aborted", "reqps", "Calls whose callers left early, by class.", {"{{caller_class}}": rate("gatepost_calls_total", "caller_class", CLASS + ',blame="aborted"')}, stack=True),
            graph("Ten agents that they call most", "reqps", "Calls of the chosen classes.", {"{{agent}}": top(rate("gatepost_calls_total", "agent", CLASS))}, link=True),
            graph("Invalid inputs", "reqps", "Calls whose input does not match the agent's contract, by agent.", {"{{agent}}": top(rate("gatepost_calls_total", "agent", CLASS + ',code="InvalidInput"'))}, link=True),
            graph("Unknown agents and operations", "reqps", "404 by class.", {"{{code}} {{caller_class}}": rate("gatepost_calls_total", "code, caller_class", CLASS + ',code=~"NotFound|CapabilityNotFound"')}, stack=True),
        ],
        "Limits": [
            graph("Refusals by limit", "reqps", "Every limit that refused a request.", {"{{limit}}": rate("gatepost_limited_requests_total", "limit")}, stack=True),
            graph("Refusals by agent", "reqps", "The ten agents at which limits refuse most.", {"{{agent}} {{limit}}": top(rate("gatepost_limited_requests_total", "agent, limit"))}),
            graph("Shares of one caller", "reqps", "Refusals because one caller took more than limits.max_share of what all share.", {"{{limit}}": rate("gatepost_limited_requests_total", "limit", 'limit=~"share|caller-concurrency|bodies|websockets|tasks|idempotency-keys"')}, stack=True),
            graph("Load shedding", "reqps", "Refusals by priority of the caller's tier.", {"priority {{priority}}": rate("gatepost_load_shed_requests_total", "priority")}, stack=True),
            graph("Refused connections", "cps", "Connections closed at once, or whose handshake failed.", {"{{result}}": rate("gatepost_connections_total", "result", 'result!="accepted"')}, stack=True),
            graph("Full limiters", "cps", "New callers or addresses that share a bucket, because limits.max_tracked_keys is reached.", {"overflow": rate("gatepost_events_total", select='event="limiter_overflow"')}),
        ],
        "Keys and tokens": [
            graph("API keys", "none", "Keys by state, on the gateway that knows most.", {"{{state}}": "max by (state) (gatepost_api_keys{@})"}),
            stat("Next key expires in", "s", "Time until the first valid key expires.", "min(gatepost_api_key_next_expiration_timestamp_seconds{@}) - time()", (RED, 0), (YELLOW, 86400), (GREEN, 7 * 86400), width=8),
            graph("Age of issuers' keys", "s", "Time since the keys of an issuer were fetched. It grows while no tokens arrive.", {"{{issuer}}": "max by (issuer) (time() - gatepost_jwks_last_fetch_success_timestamp_seconds{@})"}),
            graph("Fetches of issuers' keys", "cps", "Fetches by result.", {"{{issuer}} {{result}}": rate("gatepost_jwks_fetches_total", "issuer, result")}, stack=True),
            graph("Introspection that failed", "cps", "Tokens that the issuer's endpoint did not answer for.", {"failed": rate("gatepost_events_total", select='event="introspection_failed"')}),
            graph("Changed key files", "short", "Files that were loaded, and rejected ones, in an hour.", {"{{event}}": 'sum by (event) (increase(gatepost_events_total{@,event=~"api_keys_loaded|api_keys_rejected"}[1h]))'}),
        ],
    },
    (Variable("caller_class", "caller_class", 'gatepost_calls_total{namespace=~"$namespace",job=~"$job"}'),),
)

SOURCES = Dashboard(
    "sources",
    "Gatepost / Sources",
    "Where agents come from: how fresh each source is, and which documents are rejected.",
    {
        "Now": [
            stat("Sources", "none", "Sources of agents.", "count(count by (source) (gatepost_source_agents{@}))"),
            stat("Not read yet", "none", "Sources that a gateway has not read since its start, nor from disk.", "count(gatepost_source_read{@} == 0) or vector(0)", *IS_BAD),
            stat("Oldest", "s", "Time since the last successful poll of the oldest source.", "max(gatepost_source_age_seconds{@})", (GREEN, 0), (YELLOW, 600), (RED, 3600)),
            stat("Agents served", "none", "On the gateway that knows most.", 'max(gatepost_agents{@,state="served"})'),
            stat("Documents rejected", "none", "On the gateway that rejects most.", 'max(gatepost_agents{@,state="rejected"})', *IS_BAD),
            stat("Agents held back", "none", "Agents that the loss guard keeps until the loss is confirmed.", "max(gatepost_source_pending_removals{@}) or vector(0)", *IS_BAD),
        ],
        "Each source": [
            table(
                "Sources",
                "none",
                "The worst gateway of each source.",
                [
                    ("Source", "source"),
                    ("Read", "bool_yes_no", "min by (source) (gatepost_source_read{@})"),
                    ("Age", "s", "max by (source) (gatepost_source_age_seconds{@})"),
                    ("Agents", "none", "min by (source) (gatepost_source_agents{@})"),
                    ("Held back", "none", "max by (source) (gatepost_source_pending_removals{@})"),
                    ("Failed polls in an hour", "none", 'sum by (source) (increase(gatepost_source_polls_total{@,outcome=~"failure|rejected"}[1h]))'),
                ],
                width=24,
            ),
            graph("Age", "s", "Time since the last successful poll. After max_staleness the agents of a source are removed.", {"{{source}} {{instance}}": "gatepost_source_age_seconds{@}"}),
            graph("Polls", "cps", "Polls by outcome; held by the loss guard is one.", {"{{source}} {{outcome}}": rate("gatepost_source_polls_total", "source, outcome")}, stack=True),
            graph("Agents by source", "none", "Agents of a source, on the gateway that knows most.", {"{{source}}": "max by (source) (gatepost_source_agents{@})"}, stack=True),
        ],
        "Documents": [
            graph("Agents by state", "none", "Served, inactive, deprecated and rejected documents, on the gateway with most.", {"{{state}}": "max by (state) (gatepost_agents{@})"}),
            graph("Held back", "none", "Agents that a poll would remove.", {"{{source}}": "max by (source) (gatepost_source_pending_removals{@})"}),
            graph("Changes", "short", "New snapshots of the agents, and rejected documents, in five minutes.", {"{{event}}": 'sum by (event) (increase(gatepost_events_total{@,event=~"snapshot_published|agent_rejected"}[5m]))'}),
            graph("Difference between gateways", "none", "Agents of the gateway that knows most, minus those of the one that knows least. It should return to 0.", {"agents": 'max(gatepost_agents{@,state="served"}) - min(gatepost_agents{@,state="served"})'}),
            graph("Calls of unknown agents", "reqps", "404 for agents that no source has.", {"NotFound": rate("gatepost_calls_total", select='code="NotFound",agent="-"')}),
            graph("Brokers", "none", "Connections to MQTT brokers: 1 or 0.", {"{{broker}} {{instance}}": "gatepost_broker_connected{@}"}),
        ],
    },
)

OPERATIONS = Dashboard(
    "operations",
    "Gatepost / Operations",
    "The gateways as processes: CPU, memory, stores, tasks, webhooks, certificates, logs and traces.",
    {
        "Processes": [
            table("Gateways", "none", "Version, state and age of each gateway.", [("Gateway", "instance"), ("Version", "version"), ("Rust", "rust_version"), ("Build", "profile"), ("", "none", "max by (instance, version, rust_version, profile) (gatepost_build_info{@})"), ("Ready", "bool_yes_no", "max by (instance) (gatepost_ready{@})"), ("Draining", "bool_yes_no", "max by (instance) (gatepost_draining{@})"), ("Configuration in effect", "bool_yes_no", "max by (instance) (gatepost_config_last_reload_successful{@})"), ("Runs for", "s", "time() - max by (instance) (process_start_time_seconds{@})")], width=24, height=7),
            graph("CPU", "short", "Cores that a process uses.", {"{{instance}}": "rate(process_cpu_seconds_total{@}[$__rate_interval])"}),
            graph("Memory", "bytes", "Resident memory.", {"{{instance}}": "process_resident_memory_bytes{@}"}),
            graph("File descriptors", "percentunit", "Used descriptors of those that the process may open.", {"{{instance}}": "process_open_fds{@} / process_max_fds{@}"}),
            graph("Busy threads", "percentunit", "Share of the time in which the threads that serve calls are busy.", {"{{instance}}": "rate(gatepost_runtime_busy_seconds_total{@}[$__rate_interval]) / gatepost_runtime_threads{@}"}),
            graph("Wait for a core", "s", "How long work waits for a CPU core under load. Beyond limits.max_scheduling_delay calls are refused.", {"{{instance}}": "gatepost_run_queue_delay_seconds{@}"}),
            graph("Load shed", "short", "Priorities that are refused entirely, and the share of the next.", {"{{instance}}": "gatepost_load_shed_level{@}"}),
            graph("Calls in flight", "none", "By gateway.", {"{{instance}}": "gatepost_calls_in_flight{@}"}),
            graph("Connections", "none", "Open connections of callers, by gateway.", {"{{instance}}": "sum by (instance) (gatepost_connections_open{@})"}),
            graph("Calls cut off by a shutdown", "short", "Calls that lasted longer than the drain, and connections that could not be accepted, in five minutes.", {"{{event}}": 'sum by (event) (increase(gatepost_events_total{@,event=~"call_cut_off|accept_failed"}[5m]))'}),
        ],
        "Stores": [
            stat("Stores down", "none", "Stores that a gateway cannot use.", 'count(gatepost_store_up{@, store=~"registry|tasks|state"} == 0) or vector(0)', *IS_BAD, width=8),
            graph("p99 of operations", "s", "Reads and writes of a store.", {"{{store}}": quantile(0.99, "gatepost_store_operation_duration_seconds", "store")}),
            graph("Failures", "ops", "Operations that failed.", {"{{store}}": rate("gatepost_store_operation_failures_total", "store")}),
            graph("Operations", "ops", "Operations per second.", {"{{store}}": rate("gatepost_store_operation_duration_seconds_count", "store")}),
            graph("Connections to PostgreSQL", "none", "Connections of the pool, by state.", {"{{store}} {{state}}": "sum by (store, state) (gatepost_store_connections{@})"}, stack=True),
        ],
        "Tasks and webhooks": [
            graph("Tasks that run", "none", "On each gateway.", {"{{instance}}": "gatepost_tasks_running{@}"}, stack=True),
            graph("Stored tasks", "none", "By state. Gateways that share a store count the same tasks.", {"{{state}}": "max by (state) (gatepost_tasks_stored{@})"}, stack=True),
            graph("Tasks that end", "cps", "By outcome.", {"{{outcome}}": rate("gatepost_tasks_total", "outcome")}, stack=True),
            graph("Time of tasks", "s", "p90 by outcome.", {"{{outcome}}": quantile(0.9, "gatepost_task_duration_seconds", "outcome")}),
            graph("Webhooks", "cps", "Attempts by result.", {"{{result}}": rate("gatepost_callbacks_total", "result")}, stack=True),
            graph("Webhooks that wait", "none", "Deliveries that are due or will be tried again.", {"pending": "max(gatepost_callbacks_pending{@})"}),
            graph("Time of a delivery", "s", "One attempt.", quantiles("gatepost_callback_delivery_duration_seconds")),
            graph("Resumed streams", "cps", "Streams that callers resumed, and responses replayed for an idempotency key.", {"{{event}}": rate("gatepost_events_total", "event", 'event=~"stream_resumed|response_replayed"')}),
            graph("Lost tasks", "short", "Tasks of gateways that died, in an hour.", {"lost": 'sum(increase(gatepost_events_total{@,event="task_lost"}[1h]))'}),
        ],
        "Certificates and configuration": [
            table("Certificates", "s", "Time until a certificate expires, on the gateway with the oldest one.", [("Kind", "kind"), ("Name", "name"), ("Expires in", "s", "min by (kind, name) (gatepost_certificate_expiration_timestamp_seconds{@}) - time()")], width=12),
            graph("Refused certificates", "short", "Changed certificates that were rejected, in an hour.", {"{{listener}}": "sum by (listener) (increase(gatepost_certificate_reload_failures_total{@}[1h]))"}, width=6),
            graph("Age of the configuration", "s", "Time since the configuration in effect was loaded.", {"{{instance}}": "time() - gatepost_config_last_reload_success_timestamp_seconds{@}"}, width=6),
            graph("Brokers", "none", "Connections to MQTT brokers: 1 or 0.", {"{{broker}} {{instance}}": "gatepost_broker_connected{@}"}),
            graph("Contracts that are only reported", "cps", "Inputs or outputs that violate a contract with the setting report.", {"violated": rate("gatepost_events_total", select='event="contract_violated"')}),
            graph("Reloads", "short", "Configurations that took effect and that were rejected, in an hour.", {"{{event}}": 'sum by (event) (increase(gatepost_events_total{@,event=~"config_loaded|config_rejected"}[1h]))'}),
        ],
        "Logs and traces": [
            graph("Dropped entries of the access log", "cps", "Entries that were not written, because the log was too slow.", {"{{instance}}": "rate(gatepost_access_log_dropped_entries_total{@}[$__rate_interval])"}),
            graph("Spans", "cps", "Spans that were exported, and dropped ones.", {"{{result}}": rate("gatepost_spans_total", "result")}, stack=True),
            graph("Share of dropped spans", "percentunit", "Of all spans.", {"dropped": ratio(rate("gatepost_spans_total", select='result=~"dropped_queue|dropped_export"'), rate("gatepost_spans_total"))}),
        ],
    },
)

DASHBOARDS = (OVERVIEW, AGENT, CALLERS, SOURCES, OPERATIONS)
