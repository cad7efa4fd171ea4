//! What the handlers of the admin pages share: error responses, the refusal of web pages, and blocking threads.

use crate::{
    fault::{ErrorFormat, Fault, FaultCode},
    values::visible_text,
};
use axum::{
    extract::Request,
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use std::borrow::Cow;

/// Returns the response for a fault; an internal fault is logged.
pub(super) fn error_response(fault: &Fault) -> Response {
    if fault.code() == FaultCode::Internal {
        tracing::error!(%fault, "admin page failed");
    }
    let status = StatusCode::from_u16(fault.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let content_type = [(header::CONTENT_TYPE, ErrorFormat::Error.media_type())];
    let mut response = (status, content_type, fault.to_body(ErrorFormat::Error, "admin")).into_response();
    for (name, value) in fault.headers() {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// A JSON body in which texts of documents and agents are visible as they are, also in a terminal.
pub(super) struct VisibleJson<T>(pub(super) T);

impl<T: Serialize> IntoResponse for VisibleJson<T> {
    fn into_response(self) -> Response {
        match serde_json::to_string(&self.0) {
            Ok(body) => {
                let content_type = [(header::CONTENT_TYPE, "application/json")];
                let changed = match visible_text(&body) {
                    Cow::Borrowed(_) => None,
                    Cow::Owned(visible) => Some(visible),
                };
                (content_type, changed.unwrap_or(body)).into_response()
            }
            Err(why) => error_response(&Fault::from(FaultCode::Internal).with_detail(why)),
        }
    }
}

/// Runs `build` on a blocking thread; `None` if it panicked.
pub(super) async fn run_blocking<T: Send + 'static>(build: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(build).await.ok()
}

/// Refuses requests from web pages, which browsers mark with `Origin` (Fetch, "Origin header") or `Sec-Fetch-Site`. A
/// layer of every route that changes state.
pub(super) async fn refuse_web_pages(request: Request, next: Next) -> Response {
    let headers = request.headers();
    if headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site") {
        return error_response(&Fault::new(FaultCode::PermissionDenied, "Web pages may not use this endpoint"));
    }
    next.run(request).await
}
