//! The console where its listener is reachable from other machines and has no operators: it is closed.

use super::*;
use crate::admin::{ConsolePages, build_console_router};
use axum::{Router, body::Body, routing::get};
use http::{Request, StatusCode};
use tower_service_call::call;

/// Sends one request to a console of one page.
async fn visit(access: OperatorAccess, path: &str) -> StatusCode {
    let pages = ConsolePages { router: Router::new().route("/console", get(|| async { "page" })), assets: &[] };
    let router = build_console_router(pages, &Arc::new(access));
    call(router, Request::get(path).body(Body::empty()).unwrap()).await.status()
}

mod tower_service_call {
    use axum::{Router, body::Body, response::Response};
    use http::Request;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;

    /// Passes a request to a router, as a listener does.
    pub(super) async fn call(router: Router, request: Request<Body>) -> Response {
        TowerToHyperService::new(router).call(request).await.unwrap()
    }
}

#[tokio::test]
async fn beyond_loopback_the_console_needs_operators() {
    let state = Arc::new(FakeState::default());
    let elsewhere = SocketAddr::from(([192, 0, 2, 1], 9901));
    let loopback = SocketAddr::from(([127, 0, 0, 1], 9901));
    assert_eq!(visit(build_access(&state, None, loopback), "/console").await, StatusCode::OK);
    assert_eq!(visit(build_access(&state, None, elsewhere), "/console").await, StatusCode::FORBIDDEN);
    let config: AdminAccessConfig =
        serde_json::from_value(json!({"roles": [{"role": "admin", "callers": ["key:alice"]}]})).unwrap();
    for address in [elsewhere, loopback] {
        let visited = visit(build_access(&state, Some(config.clone()), address), "/console").await;
        assert_eq!(visited, StatusCode::SEE_OTHER, "{address}");
        let login = visit(build_access(&state, Some(config.clone()), address), "/console/login").await;
        assert_eq!(login, StatusCode::OK, "{address}");
    }
}
