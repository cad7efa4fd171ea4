//! The frame of the console's pages: the navigation, the session, and the files that pages load.

use crate::{
    admin::{CSRF_FIELD, CsrfToken, Operator, page_response},
    values::{TextParts, visible_text},
    web_page::{NavItem, PageFrame, PageShape, StaticAsset, stylesheet},
};
use axum::{
    body::Body,
    extract::FromRequestParts,
    http::{StatusCode, header, request},
    response::Response,
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, future::ready, stream};
use maud::{Markup, PreEscaped, html};
use std::{convert::Infallible, sync::LazyLock};

/// The first page.
pub(super) const OVERVIEW_PATH: &str = "/console";

const NAVIGATION: &[NavItem] = &[
    NavItem { label: "Overview", path: OVERVIEW_PATH },
    NavItem { label: "Agents", path: "/console/agents" },
    NavItem { label: "Calls", path: "/console/calls" },
    NavItem { label: "Explain", path: "/console/explain" },
    NavItem { label: "Callers and keys", path: "/console/callers" },
    NavItem { label: "Sources", path: "/console/sources" },
    NavItem { label: "Tasks", path: "/console/tasks" },
    NavItem { label: "Configuration", path: "/console/configuration" },
    NavItem { label: "Audit log", path: "/console/audit" },
];

static SCRIPT: LazyLock<StaticAsset> =
    LazyLock::new(|| StaticAsset::new("console", "js", "text/javascript; charset=utf-8", include_str!("console.js")));

static ASSETS: LazyLock<[&'static StaticAsset; 2]> = LazyLock::new(|| [stylesheet(), &SCRIPT]);

/// Returns the files that pages load.
pub(super) fn assets() -> &'static [&'static StaticAsset] {
    &*ASSETS
}

/// Where the parts of a streamed page begin.
const STREAM_MARK: &str = "<!-- answer -->";

/// A part of a page that arrives after its beginning.
pub(super) enum StreamedPart {
    /// Bytes of preformatted text, perhaps a part of a character at the end.
    Text(Bytes),
    /// The last part, after the text.
    End(Markup),
}

/// Escapes text that arrives in parts.
#[derive(Default)]
struct TextEscaper(TextParts);

impl TextEscaper {
    fn render(&mut self, part: StreamedPart) -> String {
        match part {
            StreamedPart::Text(bytes) => html! { (visible_text(&self.0.push(&bytes))) }.into_string(),
            StreamedPart::End(content) => {
                let end = html! { (PreEscaped("</pre>")) (content) }.into_string();
                visible_text(&end).into_owned()
            }
        }
    }
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
        page_response(status, self.frame(title, current).render(content))
    }

    fn frame<'a>(&self, title: &'a str, current: &'a str) -> PageFrame<'a> {
        PageFrame {
            title,
            shape: PageShape::WithNavigation,
            home: OVERVIEW_PATH,
            asset_folder: "/console/assets",
            script: Some(&SCRIPT.file_name),
            navigation: NAVIGATION,
            current,
            session: self.session(),
        }
    }

    /// Returns a page between whose two halves parts arrive one after the other. Browsers show them at once, without a
    /// script.
    pub(super) fn streamed_page(
        &self,
        title: &str,
        current: &str,
        [before, after]: [&Markup; 2],
        parts: impl Stream<Item = StreamedPart> + Send + 'static,
    ) -> Response {
        let frame = self.frame(title, current);
        // In a text of the page, the mark is escaped.
        let whole = frame.render(
            &html! { (before) pre tabindex="0" aria-label="Answer" aria-live="polite" { (PreEscaped(STREAM_MARK)) } (after) },
        );
        let (head, tail) = whole.split_once(STREAM_MARK).unwrap_or((&whole, ""));
        let tail = tail.strip_prefix("</pre>").unwrap_or(tail).to_owned();
        let mut escaper = TextEscaper::default();
        let parts = parts.map(move |part| escaper.render(part));
        let text = stream::once(ready(head.to_owned())).chain(parts).chain(stream::once(ready(tail)));
        let mut response = page_response(StatusCode::OK, String::new());
        *response.body_mut() = Body::from_stream(text.map(Ok::<_, Infallible>));
        response.headers_mut().remove(header::CONTENT_LENGTH);
        response
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
