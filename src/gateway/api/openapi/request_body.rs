//! The body of an operation: the media types that it may have, and the schema of those that are JSON.

use super::schema_bundle::{SchemaBundle, SchemaSource};
use crate::{
    contract::{ContractConfig, DocumentBudget, OperationContract},
    fault::{Fault, FaultCode, Result},
    gateway::content_negotiation::{check_json_body, is_json_media_type},
};
use http::{HeaderMap, header};
use serde_json::Value;

/// The most media types of a body.
const MAX_MEDIA_TYPES: usize = 32;

/// The body of an operation.
#[derive(Debug)]
pub(super) struct RequestBody {
    pub(super) is_required: bool,
    content: Box<[BodyFormat]>,
}

/// A media type, or a range of them, and its check.
#[derive(Debug)]
struct BodyFormat {
    range: Box<str>,
    check: BodyCheck,
}

/// How a body is checked.
#[derive(Clone, Debug)]
pub(in crate::gateway::api) enum BodyCheck {
    /// It passes unread.
    Unread,
    /// JSON, by this contract.
    Json(OperationContract),
}

impl RequestBody {
    /// Compiles a body.
    ///
    /// # Errors
    /// Why a media type cannot be checked.
    pub(super) fn compile<'a>(
        definition: &'a Value,
        source: &SchemaSource<'a>,
        config: &ContractConfig,
        budget: &DocumentBudget<'_>,
    ) -> std::result::Result<Self, String> {
        let definition = source.resolve(definition)?;
        let content = definition.get("content").and_then(Value::as_object).ok_or("has no content")?;
        if content.len() > MAX_MEDIA_TYPES {
            return Err(format!("has more than {MAX_MEDIA_TYPES} media types"));
        }
        let mut formats = Vec::with_capacity(content.len());
        for (media, format) in content {
            let range: Box<str> = essence(media).to_ascii_lowercase().into();
            let check = match format.get("schema").filter(|_| is_json_media_type(&range)) {
                None => BodyCheck::Unread,
                Some(schema) => {
                    let bundled = SchemaBundle::bundle(source, schema);
                    let compiled =
                        bundled.and_then(|schema| OperationContract::compile_input(&schema.into(), config, budget));
                    let contract = compiled.map_err(|why| format!("{range}: {why}"))?;
                    if contract.input.is_some() { BodyCheck::Json(contract) } else { BodyCheck::Unread }
                }
            };
            formats.push(BodyFormat { range, check });
        }
        // Exact types decide before `type/*`, and these before `*/*`.
        formats.sort_by_key(|format| format.range.matches('*').count());
        let is_required = definition.get("required") == Some(&Value::Bool(true));
        Ok(Self { is_required, content: formats.into() })
    }

    /// Returns what is not in force of the schemas.
    pub(super) fn unsupported(&self) -> impl Iterator<Item = &String> {
        let contracts = self.content.iter().filter_map(|format| match &format.check {
            BodyCheck::Json(contract) => Some(contract),
            BodyCheck::Unread => None,
        });
        contracts.flat_map(OperationContract::unsupported)
    }

    /// Returns the check of a body with these header fields. A body without a media type is taken for JSON.
    ///
    /// # Errors
    /// 415 for a media type that the operation does not list, and for JSON that is compressed or not UTF-8.
    pub(super) fn check_for(&self, headers: &HeaderMap) -> Result<&BodyCheck> {
        let media = headers.get(header::CONTENT_TYPE).map_or("application/json", |media| media.to_str().unwrap_or("?"));
        let media = essence(media).to_ascii_lowercase();
        let format = self.content.iter().find(|format| format.contains(&media)).ok_or_else(|| {
            let listed: Vec<&str> = self.content.iter().map(|format| &*format.range).collect();
            let message = format!("This path of the agent's API takes {}", listed.join(", "));
            Fault::new(FaultCode::UnsupportedMediaType, message).with_setting("agents.rules[].api.openapi")
        })?;
        if let BodyCheck::Json(_) = format.check {
            check_json_body(headers)?;
        }
        Ok(&format.check)
    }
}

impl BodyFormat {
    fn contains(&self, media: &str) -> bool {
        match self.range.strip_suffix("/*") {
            Some("*") => true,
            Some(kind) => media.split('/').next() == Some(kind),
            None => *self.range == *media,
        }
    }
}

fn essence(media: &str) -> &str {
    media.split(';').next().unwrap_or_default().trim()
}
