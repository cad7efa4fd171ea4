//! An OpenAPI 3.0 or 3.1 document, compiled: its paths, and the operations of each.

use super::{
    openapi_operation::{ApiOperation, OperationDefinition},
    path_template::PathTemplate,
    path_tree::PathTree,
    schema_bundle::SchemaSource,
};
use crate::{
    contract::{ContractConfig, DocumentBudget, SchemaDialect},
    fault::{Fault, FaultCode},
    registry::parse_yaml_value,
    values::json,
};
use http::Method;
use serde_json::Value;
use std::sync::Arc;

/// The most bytes of a document.
pub(super) const MAX_DOCUMENT_SIZE: usize = 8 << 20;
/// The most operations of a document.
const MAX_OPERATIONS: usize = 1_000;
/// The most problems of a document that are reported.
const MAX_PROBLEMS: usize = 20;
/// Maximum nesting depth of the document.
const MAX_DEPTH: u16 = 100;

/// The methods of operations, by their names in a document. `TRACE` returns what the caller sent, and never passes.
const METHODS: [(&str, Method); 7] = [
    ("get", Method::GET),
    ("put", Method::PUT),
    ("post", Method::POST),
    ("delete", Method::DELETE),
    ("options", Method::OPTIONS),
    ("head", Method::HEAD),
    ("patch", Method::PATCH),
];

/// A compiled document.
#[derive(Debug)]
pub(in crate::gateway) struct OpenApiDocument {
    tree: PathTree,
    paths: Vec<Arc<ApiPath>>,
    /// Why operations cannot be checked.
    pub(super) unusable: Vec<String>,
    /// What is not in force of the schemas of the others; at most 20.
    pub(super) unsupported: Vec<String>,
}

/// A path of a document.
#[derive(Debug)]
struct ApiPath {
    /// The template as it was written.
    template: Arc<str>,
    parameters: Vec<Box<str>>,
    operations: Vec<Arc<ApiOperation>>,
    /// The methods of operations that cannot be checked.
    unusable: Vec<Method>,
}

/// The path of a document that a request has.
pub(in crate::gateway) struct PathMatch<'p> {
    path: Arc<ApiPath>,
    /// What the parameters stand for, as it was sent.
    captures: Vec<&'p str>,
}

impl ApiPath {
    fn has_method(&self, method: &Method) -> bool {
        self.operation(method).is_some() || self.unusable.contains(method)
    }

    fn operation(&self, method: &Method) -> Option<&Arc<ApiOperation>> {
        let with_method = |method: &Method| self.operations.iter().find(|operation| operation.method == *method);
        with_method(method).or_else(|| with_method(&Method::GET).filter(|_| *method == Method::HEAD))
    }
}

impl OpenApiDocument {
    /// Parses and compiles a document in JSON or YAML. An operation that cannot be checked is kept as such.
    ///
    /// # Errors
    /// Every problem of the document as a whole, at most 20.
    pub(in crate::gateway) fn parse(text: &[u8], config: &ContractConfig) -> Result<Self, Vec<String>> {
        let value = parse_value(text).map_err(|why| vec![why])?;
        let dialect = dialect_of(&value).map_err(|why| vec![why])?;
        let source = SchemaSource::new(&value, dialect);
        let no_paths = || vec!["the document has no paths".to_owned()];
        let definitions = value.get("paths").and_then(Value::as_object).ok_or_else(no_paths)?;
        let budget = DocumentBudget::new(config.schema_limits(), &[]);
        let mut document =
            Self { tree: PathTree::default(), paths: Vec::new(), unusable: Vec::new(), unsupported: Vec::new() };
        let (mut problems, mut count) = (Vec::new(), 0);
        for (template, definition) in definitions.iter().filter(|(template, _)| !template.starts_with("x-")) {
            let mut report = |why: String| problems.push(format!("paths.{template}: {why}"));
            let parsed = PathTemplate::parse(template);
            let (parsed, definition) = match (parsed, source.resolve(definition)) {
                (Ok(parsed), Ok(definition)) => (parsed, definition),
                (Err(why), _) | (_, Err(why)) => {
                    report(why);
                    continue;
                }
            };
            let (mut operations, mut unusable) = (Vec::new(), Vec::new());
            for (name, method) in METHODS {
                let Some(operation) = definition.get(name) else { continue };
                count += 1;
                if count > MAX_OPERATIONS {
                    return Err(vec![format!("the document has more than {MAX_OPERATIONS} operations")]);
                }
                let definition = OperationDefinition { operation, path: definition, path_names: &parsed.parameters };
                match ApiOperation::compile(method.clone(), definition, &source, config, &budget) {
                    Ok(operation) => {
                        let room = MAX_PROBLEMS.saturating_sub(document.unsupported.len());
                        let unsupported = operation.unsupported().take(room);
                        document.unsupported.extend(unsupported.map(|why| format!("paths.{template}: {name}: {why}")));
                        operations.push(Arc::new(operation));
                    }
                    Err(why) => {
                        unusable.push(method);
                        document.unusable.push(format!("paths.{template}: {name}: {why}"));
                    }
                }
            }
            match document.tree.insert(&parsed, document.paths.len()) {
                Ok(()) => {}
                Err(other) => {
                    let other = document.paths.get(other).map_or("another path", |path| &path.template);
                    report(format!("matches the same requests as {other}"));
                }
            }
            let path =
                ApiPath { template: template.as_str().into(), parameters: parsed.parameters, operations, unusable };
            document.paths.push(Arc::new(path));
            if problems.len() + document.unusable.len() >= MAX_PROBLEMS {
                break;
            }
        }
        if count == 0 && problems.is_empty() {
            return Err(vec!["the document has no operations".to_owned()]);
        }
        if document.unusable.len() >= MAX_PROBLEMS || document.unusable.len() == count {
            problems.append(&mut document.unusable);
        }
        problems.truncate(MAX_PROBLEMS);
        if problems.is_empty() { Ok(document) } else { Err(problems) }
    }

    /// Returns the path of the document that a request has: one with the method, if there is one.
    pub(in crate::gateway) fn find<'p>(&self, method: &Method, path: &'p str) -> Option<PathMatch<'p>> {
        let has_method = |number: usize| self.paths.get(number).is_some_and(|path| path.has_method(method));
        let (number, captures) = self.tree.find(path, &has_method).or_else(|| self.tree.find(path, &|_| true))?;
        Some(PathMatch { path: Arc::clone(self.paths.get(number)?), captures })
    }
}

impl<'p> PathMatch<'p> {
    /// Returns the template of the path.
    pub(in crate::gateway) fn template(&self) -> &Arc<str> {
        &self.path.template
    }

    /// Returns the operation with a method; `GET` includes `HEAD`.
    ///
    /// # Errors
    /// 503 for an operation that cannot be checked.
    pub(in crate::gateway) fn operation(&self, method: &Method) -> Result<Option<&Arc<ApiOperation>>, Fault> {
        if self.path.unusable.contains(method) {
            let text = "The OpenAPI document has this operation, whose schemas cannot be checked";
            let fault = Fault::new(FaultCode::AgentUnavailable, text);
            return Err(fault.with_setting("agents.rules[].api.openapi"));
        }
        Ok(self.path.operation(method))
    }

    /// Returns the methods of the path.
    pub(in crate::gateway) fn methods(&self) -> impl Iterator<Item = &Method> {
        self.path.operations.iter().map(|operation| &operation.method)
    }

    /// Returns what a parameter of the path stands for.
    pub(in crate::gateway) fn parameter(&self, name: &str) -> Option<&'p str> {
        let position = self.path.parameters.iter().position(|known| **known == *name)?;
        self.captures.get(position).copied()
    }

    /// Returns what the parameters of the path stand for.
    pub(in crate::gateway) fn captures(&self) -> &[&'p str] {
        &self.captures
    }
}

fn parse_value(text: &[u8]) -> Result<Value, String> {
    if text.len() > MAX_DOCUMENT_SIZE {
        return Err(format!("the document has {} bytes (at most {MAX_DOCUMENT_SIZE})", text.len()));
    }
    match text.trim_ascii_start().first() {
        None => Err("the document is empty".to_owned()),
        Some(b'{') => json::parse(text, MAX_DEPTH).map_err(|why| format!("the document is not JSON: {why}")),
        Some(_) => parse_yaml_value(text).map_err(|why| format!("the document is not YAML: {why}")),
    }
}

fn dialect_of(document: &Value) -> Result<SchemaDialect, String> {
    // YAML reads 3.1 as a number, and 3.1.0 as a text.
    if let Some(number) = document.get("openapi").filter(|version| version.is_number()) {
        return Err(format!("openapi: {number} is a number (write it in quotes)"));
    }
    let version = document.get("openapi").and_then(Value::as_str);
    let version = version.ok_or("the document is not OpenAPI 3.0 or 3.1 (it has no member openapi)")?;
    SchemaDialect::of_version(version).ok_or_else(|| {
        let shown: String = version.chars().take(20).collect();
        format!("the document is of OpenAPI {shown} (3.0 and 3.1 can be checked)")
    })
}
