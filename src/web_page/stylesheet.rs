//! Files that pages load. The path of a file has a part of its hash, so that browsers may keep it for good.

use crate::values::{encode_hex, sha256};
use std::sync::LazyLock;

/// A file that pages load.
#[derive(Debug)]
pub struct StaticAsset {
    /// The last segment of its path.
    pub file_name: String,
    /// Its media type.
    pub media_type: &'static str,
    /// Its content.
    pub content: &'static str,
}

impl StaticAsset {
    /// The `Cache-Control` of the response: the content of a path never changes.
    pub const CACHE_CONTROL: &str = "public, max-age=31536000, immutable";

    /// Creates the asset `{stem}-{hash}.{extension}`.
    pub fn new(stem: &str, extension: &str, media_type: &'static str, content: &'static str) -> Self {
        let hash = encode_hex(&sha256(content.as_bytes()));
        let hash = hash.get(..12).unwrap_or(&hash);
        Self { file_name: format!("{stem}-{hash}.{extension}"), media_type, content }
    }
}

static STYLESHEET: LazyLock<StaticAsset> =
    LazyLock::new(|| StaticAsset::new("style", "css", "text/css; charset=utf-8", include_str!("style.css")));

/// Returns the style of all pages.
pub fn stylesheet() -> &'static StaticAsset {
    &STYLESHEET
}
