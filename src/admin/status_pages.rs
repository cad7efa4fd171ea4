//! Pages of the admin listener, and its error responses. Pages that take long with many agents are built on blocking
//! threads, so that they do not delay calls.

use super::{
    access::Operator,
    admin_context::AdminContext,
    admin_state::{AgentRow, GatewayHealth, RejectedDocument, SourceRow},
    page_response::{VisibleJson, error_response, run_blocking},
};
use crate::{
    fault::{Fault, FaultCode},
    telemetry::{ExpositionFormat, Metrics},
};
use axum::{
    Extension,
    extract::{Query, Request, State, rejection::QueryRejection},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};
use tokio::runtime::Handle;

/// Maximum number of agents on a page.
const MAX_PAGE_SIZE: usize = 1_000;
const DEFAULT_PAGE_SIZE: usize = 100;

/// How long the runtime of calls may take to run a task before the gateway counts as dead.
const LIVENESS_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves the metrics, in OpenMetrics to clients that prefer it and else in the text format of Prometheus.
pub(super) async fn metrics(State(context): State<AdminContext>, headers: HeaderMap) -> Response {
    let format = ExpositionFormat::negotiate(&headers);
    match render_metrics(context.metrics, format).await {
        Ok(page) => metrics_response(page, format),
        Err(fault) => error_response(&fault),
    }
}

/// Writes the metrics.
///
/// # Errors
/// The writer panicked, which is a defect.
pub(super) async fn render_metrics(metrics: Arc<Metrics>, format: ExpositionFormat) -> Result<String, Fault> {
    let failed = || Fault::new(FaultCode::Internal, "Writing the metrics failed");
    run_blocking(move || metrics.render(format)).await.ok_or_else(failed)
}

pub(super) fn metrics_response(page: impl IntoResponse, format: ExpositionFormat) -> Response {
    ([(header::CONTENT_TYPE, format.media_type()), (header::VARY, "Accept")], page).into_response()
}

/// Answers the liveness probe.
pub(super) async fn healthz(State(context): State<AdminContext>) -> Response {
    liveness(&context.calls).await
}

/// Returns 200 if the runtime of calls runs tasks. This page has a thread of its own, which says nothing about it.
pub(super) async fn liveness(calls: &Handle) -> Response {
    let ran = tokio::time::timeout(LIVENESS_TIMEOUT, calls.spawn(async {})).await;
    if ran.is_ok() {
        return "ok\n".into_response();
    }
    let seconds = LIVENESS_TIMEOUT.as_secs();
    tracing::error!("liveness: the runtime of calls did not run a task within {seconds}s");
    let text = format!("the gateway does not respond: no task ran within {seconds}s\n");
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

#[derive(Serialize)]
struct Readiness {
    ready: bool,
    reasons: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<&'static str>,
}

/// Returns the response of a readiness probe to clients without a role: codes, which name neither sources nor files nor
/// values of the configuration.
pub(super) fn readiness_response(health: &GatewayHealth) -> Response {
    let (reasons, warnings) = (health.not_ready_codes(), health.warning_codes());
    let ready = reasons.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, VisibleJson(Readiness { ready, reasons, warnings })).into_response()
}

/// What operators see.
#[derive(Serialize)]
struct ReadinessReport {
    ready: bool,
    reasons: Vec<String>,
    config: String,
    agents: usize,
    rejected: usize,
    /// The services that cannot be used, by code.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    /// The sources that have a warning.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sources: Vec<SourceRow>,
}

/// Answers the readiness probe: 200 if the gateway accepts calls, 503 if not. Only operators see more than codes.
pub(super) async fn readyz(State(context): State<AdminContext>, operator: Option<Extension<Operator>>) -> Response {
    let health = context.state.health();
    if operator.is_none() {
        return readiness_response(&health);
    }
    let (reasons, warnings) = (health.not_ready_reasons(), health.warning_codes());
    let GatewayHealth { agents, rejected_documents: rejected, config_error, mut problems, .. } = health;
    let sources = context.state.list_sources().into_iter().filter(SourceRow::has_warning).collect();
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    problems.truncate(DEFAULT_PAGE_SIZE);
    let report = ReadinessReport {
        ready: reasons.is_empty(),
        reasons,
        config: config_error.map_or_else(|| "ok".to_owned(), |why| format!("rejected: {why}")),
        agents: agents.unwrap_or_default(),
        rejected,
        warnings,
        problems,
        sources,
    };
    (status, VisibleJson(report)).into_response()
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AgentsQuery {
    limit: Option<usize>,
    after: Option<String>,
}

#[derive(Serialize)]
struct AgentsPage {
    total: usize,
    agents: Vec<AgentRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    rejected_total: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rejected: Vec<RejectedDocument>,
}

/// Lists the agents, one page at a time; the first page also lists rejected documents.
pub(super) async fn list_agents(
    State(context): State<AdminContext>,
    query: Result<Query<AgentsQuery>, QueryRejection>,
) -> Response {
    let invalid_query =
        || Fault::new(FaultCode::InvalidInput, "The query is not valid (use /agents?limit=1…1000&after=<id>)");
    let Query(AgentsQuery { limit, after }) = match query {
        Ok(query) => query,
        Err(why) => return error_response(&invalid_query().with_detail(why)),
    };
    let limit = limit.unwrap_or(DEFAULT_PAGE_SIZE);
    if !(1..=MAX_PAGE_SIZE).contains(&limit) {
        return error_response(&invalid_query());
    }
    let page = run_blocking(move || {
        let health = context.state.health();
        // One agent beyond the limit shows that there is a next page.
        let mut agents = context.state.list_agents(after.as_deref(), limit + 1);
        let has_more = agents.len() > limit;
        agents.truncate(limit);
        let next = agents.last().filter(|_| has_more).map(|last| last.id().to_owned());
        let rejected = if after.is_none() { context.state.list_rejected_documents(limit) } else { Vec::new() };
        AgentsPage {
            total: health.agents.unwrap_or_default(),
            agents,
            next,
            rejected_total: health.rejected_documents,
            rejected,
        }
    });
    match page.await {
        Some(page) => VisibleJson(page).into_response(),
        None => error_response(&Fault::new(FaultCode::Internal, "Listing the agents failed")),
    }
}

/// Handles unknown paths.
pub(super) async fn not_found() -> Response {
    error_response(&Fault::new(
        FaultCode::NotFound,
        "There are only /metrics, /healthz, /readyz, /agents and /sources here",
    ))
}

/// Handles methods that a page does not allow.
pub(super) async fn method_not_allowed(method: Method, uri: Uri) -> Response {
    let path = uri.path();
    let allow = if path.ends_with("/confirm") || path.ends_with("/refresh") || path == "/pairing" {
        "POST"
    } else if path.starts_with("/local/") {
        "PUT, DELETE"
    } else {
        let fault = Fault::new(FaultCode::MethodNotAllowed, "This page is read-only (use GET)");
        return error_response(&fault.with_header("allow", "GET, HEAD"));
    };
    let why = format!("The method {method} is not possible here (use {allow})");
    error_response(&Fault::new(FaultCode::MethodNotAllowed, why).with_header("allow", allow))
}

/// Adds the headers that every response has.
pub(super) async fn add_common_headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
