//! Pages without navigation: the login, and what refuses a request.

use crate::{
    fault::Fault,
    web_page::{HTML_MEDIA_TYPE, PAGE_HEADERS, PageFrame, PageShape, query_string},
};
use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use maud::{Markup, html};

/// The first page of the console.
pub(super) const CONSOLE_PATH: &str = "/console";

/// The page of the login.
pub(super) const LOGIN_PATH: &str = "/console/login";

/// The folder of the style.
const ASSET_FOLDER: &str = "/console/assets";

/// Returns the redirect to the login, which leads back to the page at `uri`.
pub(super) fn login_redirect(uri: &Uri) -> Response {
    let next = uri.path_and_query().map_or(CONSOLE_PATH, http::uri::PathAndQuery::as_str);
    let next = if next == CONSOLE_PATH { "" } else { next };
    redirect(&format!("{LOGIN_PATH}{}", query_string(&[("next", next)])))
}

/// Returns the redirect of a browser to a page.
pub(super) fn redirect(location: &str) -> Response {
    let Ok(location) = HeaderValue::try_from(location) else { return StatusCode::BAD_REQUEST.into_response() };
    (StatusCode::SEE_OTHER, [(header::LOCATION, location)]).into_response()
}

/// Returns the page for a fault.
pub fn error_page(fault: &Fault) -> Response {
    let status = StatusCode::from_u16(fault.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let page = html! {
        h1 { (fault.code().row().title) }
        p { (fault.message()) }
        p { a href=(CONSOLE_PATH) { "Overview" } " · " a href=(LOGIN_PATH) { "Log in" } }
    };
    narrow_page(status, fault.code().row().title, &page)
}

/// Returns a narrow page.
pub(super) fn narrow_page(status: StatusCode, title: &str, content: &Markup) -> Response {
    let frame = PageFrame {
        title,
        shape: PageShape::Narrow,
        home: CONSOLE_PATH,
        asset_folder: ASSET_FOLDER,
        script: None,
        navigation: &[],
        current: "",
        session: html! {},
    };
    page_response(status, frame.render(content))
}

/// Returns a page with its header fields.
pub fn page_response(status: StatusCode, page: String) -> Response {
    let mut response = (status, [(header::CONTENT_TYPE, HTML_MEDIA_TYPE)], page).into_response();
    let headers: &mut HeaderMap = response.headers_mut();
    for (name, value) in PAGE_HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response
}
