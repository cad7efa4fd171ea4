//! Tests of the table of metrics: the documentation is written from it, and every metric is as its row says.

use crate::{
    agent::Agent,
    fault::FaultCode,
    telemetry::{
        ApiKeyCounts, AttemptResult, AuditEntryResult, CallOutcome, CallbackResult, CallerClass, CertificateKind,
        ConnectionOutcome, ExpositionFormat, FetchOutcome, LimitKind, Metrics, PollOutcome, ResponseProtocol,
        ShadowRule, StoreConnectionState, StoreKind, TaskEnd, TlsHandshake, UpstreamConnection,
        broker_metrics::MAX_BROKERS,
        latency_histogram::bucket_bounds,
        listener_metrics::STATUSES,
        metric_labels::StatusClass,
        metric_table::{LabelBound, MetricLabel, MetricRow, SECTIONS},
        metrics::Event,
    },
};
use http::HeaderMap;
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
    sync::Arc,
    time::Duration,
};

/// If this variable is set, the page is written instead of compared.
const RENEW: &str = "GATEPOST_RENEW_METRICS_PAGE";

const INTRODUCTION: &str = "# Metrics

<!-- Written from the table in src/telemetry/metric_table.rs: GATEPOST_RENEW_METRICS_PAGE=1 cargo test --lib metrics_page -->

The [admin listener](operations.md#admin-listener), and the [health listener](operations.md#health-listener) with `health.metrics`, serve the metrics at `/metrics`: in OpenMetrics 1.0.0 to clients whose `Accept` prefers it, as that of Prometheus does, and else in the text format of Prometheus. Every metric has its type and meaning on the page, also before it has a series.

No label has a value that a caller can choose, and each has a bound: a list of values, or the configuration. A metric with the label `agent` has series of those agents only for which it has counted something.
";

const LABELS_INTRODUCTION: &str = "
## Labels

| Label | Values |
| --- | --- |
";

/// Returns the text of `docs/metrics.md`.
fn documentation() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut described: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (section, rows) in SECTIONS {
        write!(page, "\n## {section}\n\n| Metric | Type | Labels | Meaning |\n| --- | --- | --- | --- |\n").unwrap();
        for row in *rows {
            let labels: Vec<String> = row.labels.iter().map(label_cell).collect();
            let help = row.help.trim_end_matches('.');
            writeln!(page, "| `{}` | {} | {} | {help} |", row.name, row.kind.name(), labels.join("; ")).unwrap();
            for label in row.labels {
                if let LabelBound::Described(bound) = label.bound {
                    described.entry(label.name).or_default().insert(bound);
                }
            }
        }
    }
    page.push_str(LABELS_INTRODUCTION);
    for (label, bounds) in described {
        writeln!(page, "| `{label}` | {} |", bounds.into_iter().collect::<Vec<_>>().join("; or ")).unwrap();
    }
    let bounds: Vec<String> = bucket_bounds().iter().map(f64::to_string).collect();
    write!(page, "\n## Buckets\n\nThe buckets of all durations end at {} seconds.\n", bounds.join(", ")).unwrap();
    page.push_str("\n## Events\n\nThe values of the label `event`:\n\n| Event | Meaning |\n| --- | --- |\n");
    for event in Event::ALL {
        writeln!(page, "| `{}` | {} |", event.name(), event.meaning()).unwrap();
    }
    page
}

fn label_cell(label: &MetricLabel) -> String {
    match label.bound {
        LabelBound::Described(_) => format!("`{}`", label.name),
        LabelBound::Values(values) => {
            let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
            format!("`{}`: {}", label.name, values.join(", "))
        }
    }
}

#[test]
fn the_documentation_of_the_metrics_is_written_from_their_table() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let expected = documentation();
    if std::env::var_os(RENEW).is_some() {
        std::fs::write(&file, &expected).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(written == expected, "docs/metrics.md is not that of the table (set {RENEW}=1 and run this test)");
}

fn rows() -> impl Iterator<Item = &'static MetricRow> {
    SECTIONS.iter().flat_map(|(_, rows)| *rows)
}

/// Moves every metric once.
pub(super) fn fill_every_metric(metrics: &Metrics) {
    let document = json!({"id": "filled", "name": "Filled", "endpoint": "https://agent.example/"});
    let agent = metrics.for_agent(&Agent::from_document(&document, [0; 32]).unwrap());
    let duration = Duration::from_millis(3);
    agent.record(&CallOutcome {
        operation: None,
        caller_class: CallerClass::NONE,
        code: Some(FaultCode::Timeout),
        blame: Some(FaultCode::Timeout.row().blame),
        status: 504,
        duration,
        upstream_duration: Some(duration),
        gateway_duration: Some(duration),
        bytes_in: 1,
        bytes_out: 1,
        trace_id: None,
    });
    AttemptResult::ALL.iter().for_each(|result| agent.record_attempt(*result));
    UpstreamConnection::ALL.iter().for_each(|result| agent.record_connection(*result));
    LimitKind::ALL.iter().for_each(|limit| agent.record_limited_request(*limit));
    ShadowRule::ALL.iter().for_each(|rule| agent.record_shadow_denial(*rule));
    agent.record_retry();
    agent.record_opened_connection(duration);
    drop(agent.track_queued_call());
    agent.record_breaker_opened();
    agent.set_open_breakers(1);
    agent.set_adaptive_limit(7);
    metrics.set_endpoints([(&*agent, [1, 2])].into_iter());
    let listener = metrics.listener("127.0.0.1:8080");
    listener.record_connection(ConnectionOutcome::Accepted);
    listener.record_handshake(TlsHandshake::Tls13);
    for (protocol, status) in ResponseProtocol::ALL.iter().zip([0, 101, 200, 418]) {
        listener.record_response(*protocol, status);
    }
    for kind in CertificateKind::ALL {
        metrics.certificates().set_expirations(*kind, [("a.pem".to_owned(), 1_900_000_000)].into());
    }
    metrics.certificates().record_reload_failure("127.0.0.1:8080");
    let keys = ApiKeyCounts { valid: 1, expired: 2, disabled: 3, next_expiration: Some(1_900_000_000) };
    metrics.keys().set_api_keys(keys);
    metrics.keys().set_revocations(2, 1);
    metrics.keys().set_revocations_exchanged(1_800_000_000);
    metrics.keys().set_issuers(["https://issuer.example".into()].into_iter());
    metrics.keys().record_jwks_fetch("https://issuer.example", FetchOutcome::Success, 1_800_000_000);
    metrics.sources().set_sources(["files".into()].into_iter());
    metrics.sources().record_state("files", Some(1.5), 3, 0);
    metrics.sources().record_read("files", true);
    metrics.sources().record_poll("files", PollOutcome::Success);
    metrics.tasks().record_end(TaskEnd::Lost, duration);
    metrics.tasks().record_callback(CallbackResult::Abandoned, duration);
    for store in StoreKind::ALL {
        metrics.stores().record_operation(*store, duration, false);
        metrics.stores().set_connections(*store, StoreConnectionState::Used, 1);
    }
    AuditEntryResult::ALL.iter().for_each(|result| metrics.record_audit_entries(*result, 1));
    metrics.set_waiting_audit_entries(1);
    metrics.set_runtime(2, duration);
}

fn filled_metrics() -> Arc<Metrics> {
    let metrics = Metrics::new().unwrap();
    fill_every_metric(&metrics);
    metrics
}

/// The labels of a series, by name.
fn labels_of(series: &str) -> BTreeMap<&str, &str> {
    let labels = series.split_once('{').map_or("", |(_, labels)| labels.trim_end_matches('}'));
    labels
        .split("\",")
        .filter_map(|label| label.split_once("=\""))
        .map(|(name, value)| (name, value.trim_end_matches('"')))
        .collect()
}

#[test]
fn every_metric_has_the_type_the_meaning_and_the_labels_of_its_row() {
    let metrics = filled_metrics();
    let _broker = metrics.brokers().broker("broker.example:8883");
    let page = metrics.render(ExpositionFormat::Text);
    for row in rows() {
        assert!(page.contains(&format!("# HELP {} {}\n", row.name, row.help)), "{}", row.name);
        assert!(page.contains(&format!("# TYPE {} {}\n", row.name, row.kind.name())), "{}", row.name);
        let of_row = |line: &&str| {
            let series = line.split(['{', ' ']).next().unwrap();
            series.strip_prefix(row.name).is_some_and(|rest| ["", "_bucket", "_sum", "_count"].contains(&rest))
        };
        let series: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).filter(of_row).collect();
        assert!(!series.is_empty(), "{} has no series", row.name);
        for line in series {
            let mut labels = labels_of(line.rsplit_once(' ').unwrap().0);
            labels.remove("le");
            let expected: BTreeSet<&str> = row.label_names().into_iter().collect();
            assert_eq!(labels.keys().copied().collect::<BTreeSet<_>>(), expected, "{line}");
            for label in row.labels {
                if let LabelBound::Values(values) = label.bound {
                    assert!(values.contains(&labels[label.name]), "{line}");
                }
            }
        }
    }
    let types = page.lines().filter(|line| line.starts_with("# TYPE ")).count();
    assert_eq!(types, rows().count(), "{page}");
    let known: BTreeSet<&str> = rows().map(|row| row.name).collect();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix));
        assert!(known.contains(name) || family.is_some_and(|family| known.contains(family)), "{line}");
    }
}

#[test]
fn the_names_of_metrics_follow_the_rules_of_prometheus() {
    let mut names = BTreeSet::new();
    for row in rows() {
        assert!(names.insert(row.name), "{} is twice in the table", row.name);
        let is_counter = row.kind.name() == "counter";
        assert_eq!(row.name.ends_with("_total"), is_counter, "{}", row.name);
        assert!(row.help.ends_with('.'), "{}", row.help);
    }
}

#[test]
fn the_statuses_of_all_faults_have_a_label_of_their_own() {
    for code in FaultCode::ALL {
        let row = code.row();
        for status in row.other_statuses.iter().chain([&row.status]) {
            assert!(STATUSES.contains(status), "{status}");
        }
    }
    let metrics = Metrics::new().unwrap();
    let listener = metrics.listener("a");
    for status in 0..=u16::MAX {
        listener.record_response(ResponseProtocol::Http2, status);
    }
    let page = metrics.render(ExpositionFormat::Text);
    let series = page.lines().filter(|line| line.starts_with("gatepost_responses_total{")).count();
    assert_eq!(series, STATUSES.len() + 1, "{page}");
    assert_eq!(
        [StatusClass::of(299), StatusClass::of(499), StatusClass::of(503)].map(StatusClass::name),
        ["2xx", "4xx", "5xx"]
    );
    assert_eq!(StatusClass::of(0).name(), "other");
}

#[test]
fn brokers_beyond_the_bound_share_a_label_and_unused_ones_have_none() {
    let metrics = Metrics::new().unwrap();
    let count = |metrics: &Metrics| {
        let page = metrics.render(ExpositionFormat::Text);
        page.lines()
            .filter(|line| line.starts_with("gatepost_broker_connected{"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let brokers: Vec<_> = (0..2 * MAX_BROKERS).map(|n| metrics.brokers().broker(&format!("b{n}:1883"))).collect();
    assert_eq!(count(&metrics).len(), MAX_BROKERS + 1);
    let connections = [brokers[0].track_connection(), brokers[0].track_connection()];
    assert!(count(&metrics).contains(&"gatepost_broker_connected{broker=\"b0:1883\"} 1".to_owned()));
    let [first, second] = connections;
    drop(first);
    assert!(count(&metrics).contains(&"gatepost_broker_connected{broker=\"b0:1883\"} 1".to_owned()));
    drop(second);
    assert!(count(&metrics).contains(&"gatepost_broker_connected{broker=\"b0:1883\"} 0".to_owned()));
    drop(brokers);
    assert_eq!(count(&metrics), [""; 0]);
}

#[test]
fn removed_issuers_and_certificates_have_no_series() {
    let metrics = filled_metrics();
    metrics.keys().set_issuers([].into_iter());
    metrics.keys().record_jwks_fetch("https://issuer.example", FetchOutcome::Failure, 1_800_000_000);
    metrics.keys().set_api_keys(ApiKeyCounts::default());
    for kind in CertificateKind::ALL {
        metrics.certificates().set_expirations(*kind, BTreeMap::new());
    }
    let page = metrics.render(ExpositionFormat::Text);
    for name in ["gatepost_jwks_", "gatepost_certificate_expiration", "gatepost_api_key_next_expiration"] {
        assert!(!page.lines().any(|line| line.starts_with(name)), "{page}");
    }
}

#[test]
fn api_keys_of_several_files_are_added_up() {
    let keys = |valid, next_expiration| ApiKeyCounts { valid, next_expiration, ..ApiKeyCounts::default() };
    assert_eq!(keys(1, None).plus(keys(2, Some(7))), keys(3, Some(7)));
    assert_eq!(keys(1, Some(5)).plus(keys(2, Some(7))), keys(3, Some(5)));
    assert_eq!(keys(1, Some(5)).plus(keys(2, None)), keys(3, Some(5)));
}

#[test]
fn a_client_gets_openmetrics_if_it_prefers_it() {
    let format = |accept: &str| {
        let mut headers = HeaderMap::new();
        headers.insert("accept", accept.parse().unwrap());
        ExpositionFormat::negotiate(&headers)
    };
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    for accept in [prometheus, "application/openmetrics-text", "application/openmetrics-text, text/plain, */*"] {
        assert_eq!(format(accept), ExpositionFormat::OpenMetrics, "{accept}");
    }
    for accept in [
        "*/*",
        "text/plain",
        "application/json",
        "application/openmetrics-text;q=0",
        "application/openmetrics-text;version=9.0.0",
        "application/openmetrics-text;q=0.1, text/plain",
    ] {
        assert_eq!(format(accept), ExpositionFormat::Text, "{accept}");
    }
    assert_eq!(ExpositionFormat::negotiate(&HeaderMap::new()), ExpositionFormat::Text);
}

#[test]
fn openmetrics_has_families_without_suffixes_units_and_an_end() {
    let page = filled_metrics().render(ExpositionFormat::OpenMetrics);
    for lines in [
        "# TYPE gatepost_calls counter\ngatepost_calls_total{",
        "# TYPE gatepost_request_body_bytes counter\n# UNIT gatepost_request_body_bytes bytes\n",
        "# TYPE gatepost_queue_wait_seconds histogram\n# UNIT gatepost_queue_wait_seconds seconds\n",
        "# TYPE gatepost_build info\ngatepost_build_info{",
        ",le=\"1.0\"} ",
        ",le=\"+Inf\"} ",
        "# UNIT process_start_time_seconds seconds\n",
    ] {
        assert!(page.contains(lines), "{lines} is not in\n{page}");
    }
    assert!(page.ends_with("\n# EOF\n") && page.matches("# EOF").count() == 1, "{page}");
    assert!(!filled_metrics().render(ExpositionFormat::Text).contains("# EOF"));
}

#[test]
fn a_bucket_of_openmetrics_has_the_last_call_whose_trace_is_recorded() {
    let metrics = Metrics::new().unwrap();
    let agent = metrics.for_unknown_agent();
    let record = |millis, digit: Option<u8>| {
        agent.record(&CallOutcome {
            operation: None,
            caller_class: CallerClass::NONE,
            code: None,
            blame: None,
            status: 200,
            duration: Duration::from_millis(millis),
            upstream_duration: None,
            gateway_duration: None,
            bytes_in: 0,
            bytes_out: 0,
            trace_id: digit.map(|digit| [digit; 32]),
        });
    };
    let lines = |format| -> Vec<String> {
        let page = metrics.render(format);
        page.lines().filter(|line| line.contains("trace_id")).map(str::to_owned).collect()
    };
    record(70, None);
    assert!(lines(ExpositionFormat::OpenMetrics).is_empty(), "no trace was recorded");
    record(70, Some(b'1'));
    record(80, Some(b'2'));
    record(90, None);
    record(4_000_000, Some(b'3'));
    let [in_bucket, above_all] = &lines(ExpositionFormat::OpenMetrics)[..] else { panic!("two buckets") };
    let labels = r#"gatepost_call_duration_seconds_bucket{agent="-",blame="none",status_class="2xx",le="#;
    let (line, time) = in_bucket.rsplit_once(' ').unwrap();
    assert_eq!(line, format!(r#"{labels}"0.1"}} 4 # {{trace_id="{}"}} 0.08"#, "2".repeat(32)));
    assert!(time.parse::<f64>().unwrap() > 1.7e9, "{time} is no time");
    assert!(above_all.starts_with(&format!(r#"{labels}"+Inf"}} 5 # {{trace_id="{}"}} 4000 "#, "3".repeat(32))));
    assert!(lines(ExpositionFormat::Text).is_empty(), "the text format has no exemplars");
}
