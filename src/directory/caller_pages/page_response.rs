//! The responses of pages and of the files that they load.

use super::super::{DirectoryResponse, directory_request::CALLER_PAGES_PATH};
use crate::web_page::{HTML_MEDIA_TYPE, PAGE_HEADERS, PageFrame, PageShape, StaticAsset};
use http::{HeaderName, StatusCode, header};
use maud::{Markup, html};

/// The media types of a page, without parameters.
pub(super) const MEDIA_TYPES: &[&str] = &["text/html"];

/// The folder of the files that pages load.
const ASSET_FOLDER: &str = "/docs/assets";

/// Returns the HTML of a page with this content.
pub(super) fn render_page(title: &str, content: &Markup) -> String {
    let frame = PageFrame {
        title,
        shape: PageShape::Plain,
        home: CALLER_PAGES_PATH,
        asset_folder: ASSET_FOLDER,
        script: None,
        navigation: &[],
        current: "",
        session: html! {},
    };
    frame.render(content)
}

/// Returns the response with a page.
pub(super) fn page(title: &str, content: &Markup) -> DirectoryResponse {
    let response = DirectoryResponse::uncacheable(StatusCode::OK, render_page(title, content));
    let response = response.with_header(header::CONTENT_TYPE, HTML_MEDIA_TYPE);
    PAGE_HEADERS
        .iter()
        .fold(response, |response, (name, value)| response.with_header(HeaderName::from_static(name), value))
}

/// Returns the response with a file that pages load.
pub(super) fn asset(asset: &StaticAsset) -> DirectoryResponse {
    DirectoryResponse::uncacheable(StatusCode::OK, asset.content)
        .with_header(header::CONTENT_TYPE, asset.media_type)
        .with_header(header::CACHE_CONTROL, StaticAsset::CACHE_CONTROL)
        .with_header(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
}
