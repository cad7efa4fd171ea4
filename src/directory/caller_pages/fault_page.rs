//! The page that a browser gets instead of an error object, with the same status and code.

use super::{
    super::directory_request::{CALLER_PAGES_PATH, LOGIN_PARAMETER},
    page_response::render_page,
};
use crate::fault::{Fault, FaultCode};
use maud::html;

/// A fault, for the visitor of a page.
#[derive(Debug)]
pub struct FaultPage<'a> {
    /// The fault.
    pub fault: &'a Fault,
    /// The id of the request.
    pub request_id: &'a str,
}

impl FaultPage<'_> {
    /// Returns the HTML.
    pub fn render(&self) -> String {
        let row = self.fault.code().row();
        let content = html! {
            h1 { (row.title) }
            p { (self.fault.message()) "." }
            @if self.fault.code() == FaultCode::Unauthorized {
                p {
                    "Your browser asks for a user name and a password. The password is your API key or your bearer token; \
                     the user name does not matter. "
                    a href={ (CALLER_PAGES_PATH) "?" (LOGIN_PARAMETER) } { "Enter a credential" }
                }
            }
            @if let Some(seconds) = self.fault.retry_after_secs() {
                p { "Try again in " (seconds) " s." }
            }
            p { a href=(CALLER_PAGES_PATH) { "All agents" } }
            p .muted { "Status " (self.fault.http_status()) ", code " code { (row.name) } ", request " code { (self.request_id) } }
        };
        render_page(row.title, &content)
    }
}
