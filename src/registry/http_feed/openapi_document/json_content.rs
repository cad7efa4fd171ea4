//! The media types of requests and responses in OpenAPI documents.

use serde_json::{Map, Value};

/// The content of a request or response.
pub(super) struct MediaContent<'a> {
    /// The schema of the JSON form; `None` where the content may be JSON and has no schema.
    pub(super) json: Option<Option<&'a Value>>,
    /// The media types, in lower case and without parameters.
    pub(super) media_types: Vec<String>,
}

impl<'a> MediaContent<'a> {
    /// Reads the member `content` of a request body or response.
    pub(super) fn of(members: &'a Map<String, Value>) -> Self {
        let (mut json, mut media_types) = (None, Vec::new());
        for (media, value) in members.get("content").and_then(Value::as_object).into_iter().flatten() {
            let essence = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            if json.is_none() && matches!(essence.as_str(), "application/json" | "application/*" | "*/*") {
                json = Some(value.get("schema"));
            }
            media_types.push(essence);
        }
        Self { json, media_types }
    }

    /// Returns whether there is another media type than JSON.
    pub(super) fn has_other_types(&self) -> bool {
        self.media_types.iter().any(|media| media != "application/json")
    }
}
