//! The pages of the login: by API key in a form, and at an OpenID provider.

use super::{
    login_at_provider::{CALLBACK_PATH, ProviderAnswer},
    operator::{Operator, OperatorCredential},
    operator_access::{NoOperator, OperatorAccess, RequestSource},
    page_guard::FORM_TIMEOUT,
    plain_pages::{CONSOLE_PATH, LOGIN_PATH, error_page, narrow_page, redirect},
    request_origin::is_own_origin,
    session_cookie::ConsoleCookie,
};
use crate::{
    admin::bounded_listener::ClientAddress,
    fault::{Fault, FaultCode},
    values::Secret,
    web_page::{Notice, StaticAsset, notice},
};
use axum::{
    Extension, Form, Router,
    extract::{Path, Query, Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use maud::html;
use serde::Deserialize;
use std::sync::Arc;
use tokio::time::timeout;

const PROVIDER_PATH: &str = "/console/login/provider";

/// Returns the routes that need no login. `assets` are the files of the pages.
pub(in crate::admin) fn login_router(access: Arc<OperatorAccess>, assets: &'static [&'static StaticAsset]) -> Router {
    let find_asset = move |Path(name): Path<String>| async move { asset_response(assets, &name) };
    Router::new()
        .route(LOGIN_PATH, get(show_login).post(log_in_with_key))
        .route(PROVIDER_PATH, get(begin_at_provider))
        .route(CALLBACK_PATH, get(complete_at_provider))
        .route("/console/assets/{name}", get(find_asset))
        .with_state(access)
}

/// Returns the route that ends a session, for the routes that need one.
pub(in crate::admin) fn logout_router(access: Arc<OperatorAccess>) -> Router {
    Router::new().route("/console/logout", post(log_out)).with_state(access)
}

fn asset_response(assets: &[&'static StaticAsset], name: &str) -> Response {
    let Some(asset) = assets.iter().find(|asset| asset.file_name == name) else {
        return error_page(&Fault::new(FaultCode::NotFound, "There is no such file"));
    };
    let headers = [(header::CONTENT_TYPE, asset.media_type), (header::CACHE_CONTROL, StaticAsset::CACHE_CONTROL)];
    (headers, asset.content).into_response()
}

#[derive(Deserialize)]
struct LoginQuery {
    #[serde(default)]
    next: String,
}

async fn show_login(State(access): State<Arc<OperatorAccess>>, Query(query): Query<LoginQuery>) -> Response {
    if !access.in_force().requires_login() {
        return redirect(CONSOLE_PATH);
    }
    login_page(&access, &query.next, None)
}

#[derive(Deserialize)]
struct KeyForm {
    #[serde(default)]
    key: String,
    #[serde(default)]
    next: String,
}

async fn log_in_with_key(State(access): State<Arc<OperatorAccess>>, request: Request) -> Response {
    let (address, headers) = (ClientAddress::of(&request), request.headers().clone());
    if !is_own_origin(&headers, access.in_force().url()) {
        return error_page(&Fault::new(FaultCode::PermissionDenied, "The form was sent by a page of another site"));
    }
    let form = timeout(FORM_TIMEOUT, axum::RequestExt::extract(request)).await;
    let Ok(Ok(Form(KeyForm { key, next }))) = form else {
        return error_page(&Fault::new(FaultCode::InvalidInput, "The form is not valid"));
    };
    let (Some(name), true) = (access.api_key_header(), access.in_force().requires_login()) else {
        return error_page(&Fault::new(FaultCode::NotFound, "There is no login by key here"));
    };
    let credential = OperatorCredential::new(name, Secret::new(key.trim()));
    match access.log_in(credential, RequestSource { headers: &headers, address }).await {
        Ok(cookie) => with_cookies(redirect(local_path(&next)), [Some(cookie)]),
        Err(NoOperator::Unauthenticated(_)) => login_page(&access, &next, Some("This key is not valid")),
        Err(why) => error_page(&why.into_fault()),
    }
}

async fn begin_at_provider(State(access): State<Arc<OperatorAccess>>) -> Response {
    let in_force = access.in_force();
    let Some(login) = &in_force.login else {
        return error_page(&Fault::new(FaultCode::NotFound, "There is no login at a provider here"));
    };
    match login.begin().await {
        Ok(started) => with_cookies(
            redirect(&started.url),
            [ConsoleCookie::Login.set(&started.kept, access.in_force().is_secure())],
        ),
        Err(why) => provider_failed(&why),
    }
}

async fn complete_at_provider(
    State(access): State<Arc<OperatorAccess>>,
    Query(answer): Query<ProviderAnswer>,
    request: Request,
) -> Response {
    let in_force = access.in_force();
    let Some(login) = &in_force.login else {
        return error_page(&Fault::new(FaultCode::NotFound, "There is no login at a provider here"));
    };
    let (headers, address) = (request.headers(), ClientAddress::of(&request));
    let state = ConsoleCookie::Login.value_in(headers, access.in_force().is_secure());
    let token = match login.complete(answer, state).await {
        Ok(token) => token,
        Err(why) => return provider_failed(&why),
    };
    let value = Secret::new(format!("Bearer {}", token.expose()));
    let credential = OperatorCredential::new(header::AUTHORIZATION, value);
    match access.log_in(credential, RequestSource { headers, address }).await {
        Ok(cookie) => {
            // A page and no redirect: the browser sends a strict cookie only with requests that this site causes.
            let page = html! {
                meta http-equiv="refresh" content={ "0;url=" (CONSOLE_PATH) };
                h1 { "Logged in" }
                p { a href=(CONSOLE_PATH) { "Continue to the console" } }
            };
            let response = narrow_page(StatusCode::OK, "Logged in", &page);
            with_cookies(response, [Some(cookie), ConsoleCookie::Login.remove(access.in_force().is_secure())])
        }
        Err(why) => error_page(&why.into_fault()),
    }
}

/// Returns the page for a login at the provider that failed; `why` is for the log.
fn provider_failed(why: &str) -> Response {
    tracing::warn!(reason = why, "login of an operator at the provider failed");
    let page = html! {
        h1 { "The login failed" }
        p { "The login at the provider failed. The log of the gateway has the reason." }
        p { a href=(LOGIN_PATH) { "Log in again" } }
    };
    narrow_page(StatusCode::SERVICE_UNAVAILABLE, "The login failed", &page)
}

async fn log_out(
    State(access): State<Arc<OperatorAccess>>,
    Extension(operator): Extension<Operator>,
    request: Request,
) -> Response {
    let source = RequestSource { headers: request.headers(), address: ClientAddress::of(&request) };
    access.log_out(source, &operator);
    with_cookies(redirect(LOGIN_PATH), [ConsoleCookie::Session.remove(access.in_force().is_secure())])
}

fn with_cookies<const N: usize>(mut response: Response, cookies: [Option<HeaderValue>; N]) -> Response {
    for cookie in cookies.into_iter().flatten() {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// Returns `next` if it is a page of the console, so that a link to the login leads nowhere else.
fn local_path(next: &str) -> &str {
    let is_local = next.strip_prefix(CONSOLE_PATH).is_some_and(|rest| rest.starts_with(['/', '?']))
        && next.bytes().all(|byte| byte.is_ascii_graphic())
        && !next.contains("..");
    if is_local { next } else { CONSOLE_PATH }
}

fn login_page(access: &OperatorAccess, next: &str, problem: Option<&str>) -> Response {
    let page = html! {
        h1 { "Log in" }
        p .muted { "The console of this gateway is for operators." }
        @if let Some(problem) = problem { (notice(Notice::Bad, &html! { p { (problem) } })) }
        @if access.in_force().login.is_some() {
            .card { p { a .button .primary href=(PROVIDER_PATH) { "Log in with single sign-on" } } }
        }
        @if access.api_key_header().is_some() {
            form .card method="post" action=(LOGIN_PATH) {
                input type="hidden" name="next" value=(local_path(next));
                .field {
                    label for="key" { "API key" }
                    input type="password" id="key" name="key" autocomplete="current-password" required autofocus;
                }
                button .primary type="submit" { "Log in" }
            }
        }
    };
    let status = if problem.is_some() { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
    narrow_page(status, "Log in", &page)
}
