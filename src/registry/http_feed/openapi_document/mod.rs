//! Converts an OpenAPI document, 3.0 or 3.1, into an AIDIP document: each operation that takes JSON by `POST` becomes an
//! operation with its own address and schemas. Operations that the gateway cannot call are left out, and noted for
//! operators.

mod json_content;
mod openapi_operation;
mod openapi_schema;
mod openapi_server;

use self::{
    openapi_operation::{ConvertedOperation, OperationReader},
    openapi_server::server_url,
};
use super::{
    conversion_error::ConversionError,
    document_location::DocumentLocation,
    json_members::{object_array, quote_name, text_member},
    security_schemes::AuthAlternative,
    slug::slug,
};
use crate::contract::SchemaDialect;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// Maximum number of operations of one agent.
const MAX_OPERATIONS: usize = 256;
/// Maximum number of operations that are read, those that are left out included.
const MAX_READ_OPERATIONS: usize = 2_048;
/// Maximum number of notes about one document; one more says how many there are.
const MAX_NOTES: usize = 10;
/// Members of a path item that are operations.
const METHODS: &[&str] = &["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// An AIDIP document, and what operators should know about its conversion.
#[derive(Debug)]
pub(super) struct ConvertedOpenApi {
    pub(super) document: Value,
    pub(super) notes: Vec<String>,
}

/// Returns whether this is an OpenAPI document of any version.
pub(super) fn is_openapi_document(members: &Map<String, Value>) -> bool {
    let is_versioned = ["openapi", "swagger"]
        .iter()
        .any(|name| members.get(*name).is_some_and(|version| version.is_string() || version.is_number()));
    is_versioned
        && !members.contains_key("endpoint")
        && ["paths", "info"].iter().any(|name| members.contains_key(*name))
}

/// Converts the document that was read at `location`; its list calls it `listed_name`.
///
/// # Errors
/// Why the gateway can call no operation of the document.
pub(super) fn convert_openapi(
    members: &Map<String, Value>,
    listed_name: Option<&str>,
    location: DocumentLocation<'_>,
) -> Result<ConvertedOpenApi, ConversionError> {
    let dialect = dialect_of(members)?;
    let info = members.get("info").and_then(Value::as_object).ok_or("info: is required")?;
    let title = text_member(info, "title").ok_or("info.title: is required")?;
    let endpoint = server_url(members, location)?.ok_or("servers: has no server")?;
    let mut reader = OperationReader::new(members, dialect, location, &endpoint);
    let mut collected = CollectedOperations::default();
    collected.read_paths(members, &mut reader)?;
    let notes = collected.notes();
    if collected.operations.is_empty() {
        let reasons = if notes.is_empty() { "paths is empty".to_owned() } else { notes.join("; ") };
        return Err(ConversionError::unsupported(format!(
            "is an OpenAPI document without an operation that the gateway can call ({reasons})"
        )));
    }
    let mut document = Map::new();
    let mut put = |name: &str, value: Value| drop(document.insert(name.to_owned(), value));
    put("id", slug(listed_name.unwrap_or(title)).into());
    put("name", title.into());
    put("endpoint", String::from(endpoint).into());
    if let Some(description) = text_member(info, "description").or_else(|| text_member(info, "summary")) {
        put("description", description.into());
    }
    match info.get("version") {
        Some(Value::Number(number)) => put("version", number.to_string().into()),
        Some(version) => put("version", version.clone()),
        None => {}
    }
    if let Some(authentication) = collected.authentication {
        put("authentication", authentication.to_json());
    }
    let tags = object_array(members, "tags")?;
    let tags: Vec<Value> = tags.iter().filter_map(|(_, tag)| text_member(tag, "name")).map(Value::from).collect();
    put("tags", tags.into());
    put("capabilities", collected.names.into_iter().map(Value::from).collect());
    put("operations", collected.operations.into());
    Ok(ConvertedOpenApi { document: Value::Object(document), notes })
}

fn dialect_of(members: &Map<String, Value>) -> Result<SchemaDialect, ConversionError> {
    // YAML reads 3.1 as a number, and 3.1.0 as a text.
    if let Some(number) = members.get("openapi").filter(|version| version.is_number()) {
        return Err(format!("openapi: {number} is a number (write it in quotes)").into());
    }
    let version = text_member(members, "openapi").or_else(|| text_member(members, "swagger")).unwrap_or_default();
    SchemaDialect::of_version(version).ok_or_else(|| {
        let version = quote_name(version);
        let why = format!("is an OpenAPI document of version {version} (the gateway reads 3.0 and 3.1)");
        ConversionError::unsupported(why)
    })
}

/// The operations that were read so far.
#[derive(Default)]
struct CollectedOperations {
    operations: Vec<Value>,
    /// In the order of the operations.
    names: Vec<String>,
    authentication: Option<AuthAlternative>,
    /// The first notes.
    notes: Vec<String>,
    /// Number of notes beyond them.
    further_notes: usize,
}

impl CollectedOperations {
    fn read_paths(
        &mut self,
        members: &Map<String, Value>,
        reader: &mut OperationReader<'_>,
    ) -> Result<(), ConversionError> {
        let paths = match members.get("paths") {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::Object(paths)) => paths,
            Some(_) => return Err("paths: must be an object".into()),
        };
        let (mut names, mut read) = (HashSet::new(), 0);
        for (path, item) in paths.iter().filter(|(path, _)| !path.starts_with("x-")) {
            let item = match reader.resolve_object(item) {
                Ok(item) => item,
                Err(why) => {
                    self.add_note(format!("paths: {} is left out ({why})", quote_name(path)));
                    continue;
                }
            };
            for method in METHODS {
                let Some(operation) = item.get(*method) else { continue };
                read += 1;
                if read > MAX_READ_OPERATIONS {
                    return Err(format!("paths: has more than {MAX_READ_OPERATIONS} operations").into());
                }
                let operation = reader.read_operation(path, method, item, operation)?;
                let added = operation.and_then(|operation| self.add(operation, &mut names));
                if let Err(why) = added {
                    let method = method.to_ascii_uppercase();
                    self.add_note(format!("paths: {method} {} is left out ({why})", quote_name(path)));
                }
                if self.operations.len() > MAX_OPERATIONS {
                    return Err(format!("paths: has more than {MAX_OPERATIONS} operations that take JSON").into());
                }
            }
        }
        Ok(())
    }

    /// Adds an operation, unless its name or its credential does not fit the operations before.
    fn add(&mut self, operation: ConvertedOperation, names: &mut HashSet<String>) -> Result<(), String> {
        let ConvertedOperation { name, document, requirement, notes } = operation;
        let authentication = match (self.authentication.clone(), requirement) {
            (Some(agent), Some(own)) => Some(agent.combine(own)?),
            (agent, own) => agent.or(own),
        };
        if !names.insert(name.clone()) {
            return Err(format!("its name becomes {name}, as that of an operation before it"));
        }
        self.authentication = authentication;
        self.names.push(name);
        self.operations.push(document);
        notes.into_iter().for_each(|note| self.add_note(note));
        Ok(())
    }

    fn add_note(&mut self, note: String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(note);
        } else {
            self.further_notes += 1;
        }
    }

    fn notes(&self) -> Vec<String> {
        let further = self.further_notes;
        let last = (further > 0).then(|| format!("paths: {further} further notes about operations are left out"));
        self.notes.iter().cloned().chain(last).collect()
    }
}
