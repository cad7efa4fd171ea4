//! The guards of pages and of the JSON interface: who the operator is, whether it has the role, and whether a form was
//! sent by a page of the console.

use super::{
    access_config::OperatorRole,
    operator_access::{IdentifiedOperator, NoOperator, OperatorAccess, RequestSource},
    plain_pages::{error_page, login_redirect},
    request_origin::is_own_origin,
};
use crate::{
    admin::{bounded_listener::ClientAddress, page_response::error_response},
    fault::{Fault, FaultCode},
    values::{Secret, form_decode},
};
use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{Method, header},
    middleware::Next,
    response::Response,
};
use std::{sync::Arc, time::Duration};
use subtle::ConstantTimeEq as _;
use tokio::time::timeout;

/// The name of the form field with the token.
pub const CSRF_FIELD: &str = "csrf";

/// The header field with the token, for scripts.
const CSRF_HEADER: &str = "x-csrf-token";

/// Maximum bytes of a form.
const MAX_FORM_BYTES: usize = 4 << 20;

/// How long a form may take to arrive.
pub(super) const FORM_TIMEOUT: Duration = Duration::from_secs(30);

/// The token that forms of a page carry, an extension of every request to a page. Pages of other sites cannot read it.
#[derive(Clone, Debug)]
pub struct CsrfToken(Secret);

impl CsrfToken {
    /// Returns the text for the form field.
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    fn is_equal(&self, text: &str) -> bool {
        self.expose().as_bytes().ct_eq(text.as_bytes()).into()
    }
}

/// Lets a request to a page pass if an operator made it, and adds the [`super::Operator`] and the [`CsrfToken`] to it. Forms
/// must come from a page of the console.
pub(in crate::admin) async fn require_operator_page(
    State(access): State<Arc<OperatorAccess>>,
    mut request: Request,
    next: Next,
) -> Response {
    let source = RequestSource { headers: request.headers(), address: ClientAddress::of(&request) };
    let IdentifiedOperator { operator, csrf_token } = match access.identify(source).await {
        Ok(identified) => identified,
        Err(NoOperator::Unauthenticated(_)) if is_read(request.method()) && access.in_force().requires_login() => {
            return login_redirect(request.uri());
        }
        Err(why) => return error_page(&why.into_fault()),
    };
    let csrf_token = CsrfToken(csrf_token);
    if !is_read(request.method()) {
        if !is_own_origin(request.headers(), access.in_force().url()) {
            return error_page(&Fault::new(FaultCode::PermissionDenied, "The form was sent by a page of another site"));
        }
        // A credential in a header field is sent by programs only.
        let needs_token = operator.has_session || operator.credential.is_none();
        request = match require_form_token(request, needs_token.then_some(&csrf_token)).await {
            Ok(request) => request,
            Err(fault) => return error_page(&fault),
        };
    }
    request.extensions_mut().insert(operator);
    request.extensions_mut().insert(csrf_token);
    next.run(request).await
}

/// Checks the token of a form, whose body is read completely.
async fn require_form_token(request: Request, token: Option<&CsrfToken>) -> Result<Request, Fault> {
    let (head, body) = request.into_parts();
    let too_large = |_| Fault::new(FaultCode::PayloadTooLarge, "The form is too large");
    let too_slow = |_| Fault::new(FaultCode::Timeout, "The form did not arrive in time").with_status(408);
    let body = timeout(FORM_TIMEOUT, to_bytes(body, MAX_FORM_BYTES)).await.map_err(too_slow)?.map_err(too_large)?;
    if let Some(token) = token {
        let in_header = head.headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok());
        let media_type = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        let is_form = essence.eq_ignore_ascii_case("application/x-www-form-urlencoded");
        let in_form = is_form.then(|| field_of_form(&body, CSRF_FIELD)).flatten();
        let is_valid = in_header.or(in_form.as_deref()).is_some_and(|text| token.is_equal(text));
        if !is_valid {
            let message = "The form has no valid token (reload the page and send it again)";
            return Err(Fault::new(FaultCode::PermissionDenied, message));
        }
    }
    Ok(Request::from_parts(head, Body::from(body)))
}

/// Returns the value of the first field `name` of an HTML form.
fn field_of_form(body: &[u8], name: &str) -> Option<String> {
    let mut pairs = std::str::from_utf8(body).ok()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(field, _)| *field == name).and_then(|(_, value)| form_decode(value))
}

/// Requires a role of the operator, where operators have roles: [`OperatorRole::Viewer`] for requests that read, `role`
/// for others. Guards the JSON interface, whose requests without `admin.access` are those of whoever reaches it.
pub(in crate::admin) async fn require_role_for_api(
    State(guard): State<ApiGuard>,
    mut request: Request,
    next: Next,
) -> Response {
    let ApiGuard { access, role } = guard;
    if !access.in_force().requires_login() {
        return next.run(request).await;
    }
    let source = RequestSource { headers: request.headers(), address: ClientAddress::of(&request) };
    let operator = match access.identify(source).await {
        Ok(identified) => identified.operator,
        Err(why) => return error_response(&why.into_fault()),
    };
    if let Err(fault) = operator.require(if is_read(request.method()) { OperatorRole::Viewer } else { role }) {
        return error_response(&fault);
    }
    request.extensions_mut().insert(operator);
    next.run(request).await
}

/// Adds the [`super::Operator`] to a request, if an operator made it. Others pass too.
pub(in crate::admin) async fn recognize_operator(
    State(access): State<Arc<OperatorAccess>>,
    mut request: Request,
    next: Next,
) -> Response {
    let source = RequestSource { headers: request.headers(), address: ClientAddress::of(&request) };
    if let Some(operator) = access.recognize(source).await {
        request.extensions_mut().insert(operator);
    }
    next.run(request).await
}

/// What the JSON interface requires for requests that change something.
#[derive(Clone)]
pub(in crate::admin) struct ApiGuard {
    pub(in crate::admin) access: Arc<OperatorAccess>,
    pub(in crate::admin) role: OperatorRole,
}

fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}
