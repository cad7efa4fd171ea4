//! The frame of the console's pages: the navigation, the session, and the files that pages load.

use crate::{
    admin::{CSRF_FIELD, CsrfToken, Operator, page_response},
    web_page::{NavItem, PageFrame, PageShape, StaticAsset, stylesheet},
};
use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request},
    response::Response,
};
use maud::{Markup, html};
use std::sync::LazyLock;

/// The first page.
pub(super) const OVERVIEW_PATH: &str = "/console";

const NAVIGATION: &[NavItem] = &[
    NavItem { label: "Overview", path: OVERVIEW_PATH },
    NavItem { label: "Agents", path: "/console/agents" },
    NavItem { label: "Callers and keys", path: "/console/callers" },
    NavItem { label: "Tasks", path: "/console/tasks" },
    NavItem { label: "Audit log", path: "/console/audit" },
];

static SCRIPT: LazyLock<StaticAsset> =
    LazyLock::new(|| StaticAsset::new("console", "js", "text/javascript; charset=utf-8", include_str!("console.js")));

static ASSETS: LazyLock<[&'static StaticAsset; 2]> = LazyLock::new(|| [stylesheet(), &SCRIPT]);

/// Returns the files that pages load.
pub(super) fn assets() -> &'static [&'static StaticAsset] {
    &*ASSETS
}

/// Who requested a page. The guard of the pages adds both parts to every request.
pub(super) struct Visitor {
    pub(super) operator: Operator,
    csrf_token: CsrfToken,
}

impl<S: Sync> FromRequestParts<S> for Visitor {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut request::Parts, _: &S) -> Result<Self, StatusCode> {
        let operator = parts.extensions.get::<Operator>().cloned();
        let visitor = operator.zip(parts.extensions.get::<CsrfToken>().cloned());
        let (operator, csrf_token) = visitor.ok_or(StatusCode::INTERNAL_SERVER_ERROR)?;
        Ok(Self { operator, csrf_token })
    }
}

impl Visitor {
    /// Returns the field that every form of a page has.
    pub(super) fn csrf_field(&self) -> Markup {
        html! { input type="hidden" name=(CSRF_FIELD) value=(self.csrf_token.expose()); }
    }

    /// Returns a page. `current` is the path of its link in the navigation.
    pub(super) fn page(&self, title: &str, current: &str, content: &Markup) -> Response {
        self.page_with_status(StatusCode::OK, title, current, content)
    }

    /// Returns a page with a status, such as a form that was refused.
    pub(super) fn page_with_status(
        &self,
        status: StatusCode,
        title: &str,
        current: &str,
        content: &Markup,
    ) -> Response {
        let frame = PageFrame {
            title,
            shape: PageShape::WithNavigation,
            home: OVERVIEW_PATH,
            asset_folder: "/console/assets",
            script: Some(&SCRIPT.file_name),
            navigation: NAVIGATION,
            current,
            session: self.session(),
        };
        page_response(status, frame.render(content))
    }

    fn session(&self) -> Markup {
        let name = self.operator.name.as_deref().unwrap_or("this machine");
        html! {
            div { strong { (name) } }
            div .muted { "Role: " (self.operator.role.name()) }
            @if self.operator.has_session {
                form method="post" action="/console/logout" {
                    (self.csrf_field())
                    button type="submit" { "Log out" }
                }
            }
        }
    }
}
