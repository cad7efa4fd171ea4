//! The pages of the health listener, for the probes of an orchestrator and for Prometheus. They have no
//! authentication: they change nothing, and each is cheap however often it is read.

use super::{
    admin_state::{AdminState, GatewayHealth},
    page_response::error_response,
    status_pages::{
        add_common_headers, liveness, method_not_allowed, metrics_response, readiness_response, render_metrics,
    },
};
use crate::{
    fault::{Fault, FaultCode},
    telemetry::{ExpositionFormat, Metrics},
};
use axum::{
    Router, body::Bytes, extract::State, http::HeaderMap, middleware::from_fn, response::Response, routing::get,
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, sync::Mutex};

/// How long a rendered page of metrics is served again.
const METRICS_TTL: Duration = Duration::from_secs(1);

/// What the health listener serves.
pub struct HealthService {
    /// The state that the probes read.
    pub state: Arc<dyn AdminState>,
    /// The metrics, if they are served.
    pub metrics: Option<Arc<Metrics>>,
    /// The host names of a listener on loopback, besides loopback names.
    pub allowed_hosts: Vec<String>,
    /// The runtime of calls, whose progress the liveness probe tests.
    pub calls: Handle,
}

#[derive(Clone)]
struct HealthContext {
    state: Arc<dyn AdminState>,
    calls: Handle,
}

#[derive(Clone)]
struct CachedMetrics {
    metrics: Arc<Metrics>,
    /// The last page in each format.
    pages: Arc<Mutex<[Option<RenderedPage>; 2]>>,
}

/// A page, and when it was rendered.
type RenderedPage = (Instant, Bytes);

pub(super) fn build_health_router(service: HealthService) -> Router {
    let HealthService { state, metrics, calls, allowed_hosts: _ } = service;
    let probes = Router::new()
        .route("/livez", get(livez))
        .route("/healthz", get(livez))
        .route("/readyz", get(readyz))
        .route("/startupz", get(startupz))
        .with_state(HealthContext { state, calls });
    let metrics = metrics.map(|metrics| {
        Router::new()
            .route("/metrics", get(cached_metrics))
            .with_state(CachedMetrics { metrics, pages: Arc::default() })
    });
    probes
        .merge(metrics.unwrap_or_default())
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn(add_common_headers))
}

async fn livez(State(context): State<HealthContext>) -> Response {
    liveness(&context.calls).await
}

/// Answers the readiness probe: 200 if the gateway accepts calls, 503 with the codes of the reasons if not.
async fn readyz(State(context): State<HealthContext>) -> Response {
    readiness_response(&context.state.health())
}

/// Answers the startup probe: 503 until the gateway is ready for the first time. It is not ready again while it drains,
/// but it has started.
async fn startupz(State(context): State<HealthContext>) -> Response {
    let health = context.state.health();
    readiness_response(&GatewayHealth { draining: false, ..health })
}

async fn cached_metrics(State(cached): State<CachedMetrics>, headers: HeaderMap) -> Response {
    let format = ExpositionFormat::negotiate(&headers);
    let mut pages = cached.pages.lock().await;
    let [text, open_metrics] = &mut *pages;
    let page = match format {
        ExpositionFormat::Text => text,
        ExpositionFormat::OpenMetrics => open_metrics,
    };
    if let Some((_, text)) = page.as_ref().filter(|(rendered_at, _)| rendered_at.elapsed() < METRICS_TTL) {
        return metrics_response(text.clone(), format);
    }
    match render_metrics(Arc::clone(&cached.metrics), format).await {
        Ok(text) => {
            let text = Bytes::from(text);
            *page = Some((Instant::now(), text.clone()));
            metrics_response(text, format)
        }
        Err(fault) => error_response(&fault),
    }
}

async fn not_found() -> Response {
    let why = "There are only /livez, /healthz, /readyz, /startupz and, with health.metrics, /metrics here";
    error_response(&Fault::new(FaultCode::NotFound, why))
}
