//! Tests of the metrics page: its values, its validity, and the bound on its size.

use super::metrics_page::fill_every_metric;
use crate::{
    agent::{Agent, AuthenticationMethod},
    fault::FaultCode,
    telemetry::{
        AgentDocumentState, CallOutcome, CallerClass, ConnectionOutcome, Event, ExpositionFormat, LimitKind, Metrics,
        MetricsConfig,
    },
};
use serde_json::json;
use std::{sync::Arc, time::Duration};

const KEY: CallerClass = CallerClass::of_method(AuthenticationMethod::ApiKey);

fn agent(id: &str, operations: &[&str]) -> Agent {
    let operations: Vec<_> = operations.iter().map(|name| json!({"name": name})).collect();
    let mut document = json!({"id": id, "name": id, "endpoint": "https://agent.example/"});
    if !operations.is_empty() {
        document["operations"] = operations.into();
    }
    Agent::from_document(&document, [0; 32]).unwrap()
}

fn outcome(operation: Option<usize>, code: Option<FaultCode>) -> CallOutcome {
    CallOutcome {
        operation,
        caller_class: KEY,
        code,
        blame: code.map(|code| code.row().blame),
        status: code.map_or(200, |code| code.row().status),
        duration: Duration::from_millis(7),
        upstream_duration: Some(Duration::from_millis(5)),
        gateway_duration: Some(Duration::from_millis(2)),
        bytes_in: 10,
        bytes_out: 100,
        trace_id: None,
    }
}

fn new_metrics() -> Arc<Metrics> {
    Metrics::new().unwrap()
}

#[track_caller]
fn assert_contains_line(metrics: &Metrics, line: &str) {
    let page = metrics.render(ExpositionFormat::Text);
    assert!(page.lines().any(|rendered| rendered == line), "{line} is not in\n{page}");
}

#[test]
fn calls_are_counted_by_agent_operation_caller_class_and_code() {
    let metrics = new_metrics();
    let handle = metrics.for_agent(&agent("echo", &["say"]));
    handle.record(&outcome(Some(0), None));
    handle.record(&outcome(Some(0), None));
    handle.record(&outcome(Some(0), Some(FaultCode::InvalidInput)));
    handle.record_aborted(&CallOutcome { status: 0, ..outcome(Some(0), None) });
    handle.record_aborted(&outcome(Some(0), Some(FaultCode::Timeout)));
    assert_contains_line(
        &metrics,
        r#"gatepost_calls_total{agent="echo",code="aborted",caller_class="key",operation="say",blame="aborted"} 1"#,
    );
    assert_contains_line(
        &metrics,
        r#"gatepost_calls_total{agent="echo",code="Timeout",caller_class="key",operation="say",blame="agent"} 1"#,
    );
    metrics.for_agent(&agent("plain", &[])).record(&outcome(Some(0), None));
    assert_contains_line(
        &metrics,
        r#"gatepost_calls_total{agent="echo",code="ok",caller_class="key",operation="say",blame="none"} 2"#,
    );
    assert_contains_line(
        &metrics,
        r#"gatepost_calls_total{agent="echo",code="InvalidInput",caller_class="key",operation="say",blame="caller"} 1"#,
    );
    assert_contains_line(
        &metrics,
        r#"gatepost_calls_total{agent="plain",code="ok",caller_class="key",operation="invoke",blame="none"} 1"#,
    );
    for (bound, count) in [("0.005", 0), ("0.01", 2), ("3600", 2), ("+Inf", 2)] {
        let labels = format!(r#"agent="echo",blame="none",status_class="2xx",le="{bound}""#);
        assert_contains_line(&metrics, &format!("gatepost_call_duration_seconds_bucket{{{labels}}} {count}"));
    }
    for (blame, class) in [("caller", "4xx"), ("agent", "5xx"), ("aborted", "other")] {
        let labels = format!(r#"agent="echo",blame="{blame}",status_class="{class}""#);
        assert_contains_line(&metrics, &format!("gatepost_call_duration_seconds_count{{{labels}}} 1"));
    }
    assert_contains_line(&metrics, r#"gatepost_gateway_duration_seconds_sum{agent="echo"} 0.01"#);
    assert_contains_line(&metrics, r#"gatepost_request_body_bytes_total{agent="echo"} 50"#);
    assert_contains_line(&metrics, r#"gatepost_response_body_bytes_total{agent="echo"} 500"#);
    assert_contains_line(&metrics, r#"gatepost_upstream_duration_seconds_count{agent="echo"} 5"#);
}

#[test]
fn labels_with_equal_concatenations_have_separate_counters() {
    let metrics = new_metrics();
    metrics.for_agent(&agent("a", &["bc"])).record(&outcome(Some(0), None));
    metrics.for_agent(&agent("ab", &["c"])).record(&outcome(Some(0), None));
    assert_contains_line(
        &metrics,
        r#"gatepost_calls_total{agent="a",code="ok",caller_class="key",operation="bc",blame="none"} 1"#,
    );
    assert_contains_line(
        &metrics,
        r#"gatepost_calls_total{agent="ab",code="ok",caller_class="key",operation="c",blame="none"} 1"#,
    );
}

#[test]
fn counters_survive_a_changed_document_and_end_with_the_agent() {
    let metrics = new_metrics();
    metrics.for_agent(&agent("echo", &["a", "b"])).record(&outcome(Some(1), None));
    metrics.for_agent(&agent("echo", &["b"])).record(&outcome(Some(0), None));
    assert_contains_line(
        &metrics,
        r#"gatepost_calls_total{agent="echo",code="ok",caller_class="key",operation="b",blame="none"} 2"#,
    );
    metrics.retain_agents(|_| false);
    assert!(!metrics.render(ExpositionFormat::Text).contains("echo"));
}

#[test]
fn agents_beyond_the_limit_share_one_label() {
    let metrics = new_metrics();
    metrics.configure(&MetricsConfig { max_agent_labels: 2 });
    for id in ["a", "b", "c", "d"] {
        metrics.for_agent(&agent(id, &["say"])).record(&outcome(Some(0), None));
    }
    assert_contains_line(
        &metrics,
        r#"gatepost_calls_total{agent="b",code="ok",caller_class="key",operation="say",blame="none"} 1"#,
    );
    assert_contains_line(
        &metrics,
        r#"gatepost_calls_total{agent="other",code="ok",caller_class="key",operation="-",blame="none"} 2"#,
    );
    assert!(!metrics.render(ExpositionFormat::Text).contains(r#"agent="c""#));
}

#[test]
fn the_number_of_operation_labels_per_agent_is_bounded() {
    let metrics = new_metrics();
    let names: Vec<String> = (0..250).map(|n| format!("o{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let handle = metrics.for_agent(&agent("big", &names));
    (0..250).for_each(|at| handle.record(&outcome(Some(at), None)));
    let page = metrics.render(ExpositionFormat::Text);
    assert!(page.matches(r#"gatepost_calls_total{agent="big""#).count() <= 65, "{page}");
    assert_contains_line(
        &metrics,
        r#"gatepost_calls_total{agent="big",code="ok",caller_class="key",operation="-",blame="none"} 186"#,
    );
}

#[test]
fn an_unconfigured_tier_creates_no_label() {
    let metrics = new_metrics();
    metrics.register_tiers((0..40).map(|n| ["gold", "key", "silver"][n % 3]));
    assert_ne!(metrics.caller_class(AuthenticationMethod::ApiKey, Some("gold")), KEY);
    assert_eq!(
        metrics.caller_class(AuthenticationMethod::Bearer, Some("forged")),
        CallerClass::of_method(AuthenticationMethod::Bearer)
    );
    assert_eq!(
        metrics.caller_class(AuthenticationMethod::Bearer, Some("key")),
        CallerClass::of_method(AuthenticationMethod::Bearer)
    );
    let more: Vec<String> = (0..40).map(|n| format!("t{n}")).collect();
    metrics.register_tiers(more.iter().map(String::as_str));
    assert_eq!(metrics.caller_class(AuthenticationMethod::ApiKey, Some("t39")), KEY);
}

#[test]
fn in_flight_guards_decrement_when_dropped_even_by_a_panic() {
    let metrics = new_metrics();
    let listener = metrics.listener("[::]:8443");
    let connection = listener.track_connection();
    let call = metrics.track_call();
    assert_contains_line(&metrics, "gatepost_calls_in_flight 1");
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _call = call;
        std::panic::resume_unwind(Box::new("x"));
    }));
    assert!(result.is_err());
    assert_contains_line(&metrics, "gatepost_calls_in_flight 0");
    drop(connection);
    assert_contains_line(&metrics, r#"gatepost_connections_open{listener="[::]:8443"} 0"#);
}

#[test]
fn a_rejected_configuration_is_reported_until_the_next_success() {
    let metrics = new_metrics();
    assert_contains_line(&metrics, "gatepost_config_last_reload_successful 0");
    metrics.record_config_loaded(1_800_000_000);
    assert_contains_line(&metrics, "gatepost_config_last_reload_successful 1");
    metrics.record_config_rejected();
    assert_contains_line(&metrics, "gatepost_config_last_reload_successful 0");
    assert_contains_line(&metrics, "gatepost_config_last_reload_success_timestamp_seconds 1800000000");
    assert_contains_line(&metrics, r#"gatepost_events_total{event="config_rejected"} 1"#);
}

#[test]
fn every_event_has_a_unique_name() {
    let mut names: Vec<_> = Event::ALL.iter().map(|event| event.name()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), Event::ALL.len());
}

/// `make test-unit` leaves out tests with `external::` in their path: this one needs promtool.
mod external {
    use super::*;
    use std::{
        io::Write as _,
        process::{Command, Stdio},
    };

    fn check_with_promtool(page: &str) {
        let tool = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut tool = tool.expect("promtool is missing (apt-get install prometheus)");
        tool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
        let output = tool.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success() && text.is_empty(), "{}\n{page}", String::from_utf8_lossy(&text));
    }

    #[test]
    fn the_page_passes_promtool_before_and_after_calls() {
        let metrics = new_metrics();
        check_with_promtool(&metrics.render(ExpositionFormat::Text));
        metrics.register_tiers(["gold \"\\\n"].into_iter());
        for id in ["a", "-", "other"] {
            let handle = metrics.for_agent(&agent(id, &["translate", "-"]));
            for code in FaultCode::ALL {
                handle.record(&outcome(Some(0), Some(*code)));
                handle.record(&outcome(Some(1), None));
            }
            handle.record(&CallOutcome {
                caller_class: metrics.caller_class(AuthenticationMethod::ApiKey, Some("gold \"\\\n")),
                ..outcome(None, None)
            });
        }
        metrics.for_unknown_agent().record(&outcome(None, Some(FaultCode::NotFound)));
        metrics.listener("[::]:8443").record_connection(ConnectionOutcome::HandshakeFailed);
        fill_every_metric(&metrics);
        metrics.record_limited_request(LimitKind::CallerAgent);
        metrics.set_agent_count(AgentDocumentState::Inactive, 3);
        metrics.record_config_loaded(1_800_000_000);
        check_with_promtool(&metrics.render(ExpositionFormat::Text));
    }
}
