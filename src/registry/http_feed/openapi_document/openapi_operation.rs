//! Operations of OpenAPI documents: which ones the gateway can call, and what they become.

use super::{
    json_content::MediaContent,
    openapi_schema::{SchemaBundler, SchemaDirection, SchemaError},
    openapi_server::{operation_url, server_url},
};
use crate::{
    contract::{CompiledSchema, ContractConfig, DocumentBudget, SchemaDialect},
    net::Url,
    registry::http_feed::{
        conversion_error::ConversionError,
        document_location::DocumentLocation,
        json_members::{quote_name, text_member},
        security_schemes::{AuthAlternative, requirement_of_operation},
        slug::operation_name,
    },
    values::json::truncate,
};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Maximum number of references that lead to one object.
const MAX_REFERENCES: usize = 8;
/// Maximum number of parameters of a path or an operation.
const MAX_PARAMETERS: usize = 64;
/// Maximum number of parameters that the description of an operation names.
const MAX_NAMED_PARAMETERS: usize = 20;

/// An operation of the AIDIP document.
pub(super) struct ConvertedOperation {
    pub(super) name: String,
    pub(super) document: Value,
    /// The credential that the operation requires.
    pub(super) requirement: Option<AuthAlternative>,
    /// What operators should know about it.
    pub(super) notes: Vec<String>,
}

/// Reads the operations of one document.
pub(super) struct OperationReader<'a> {
    document: &'a Map<String, Value>,
    location: DocumentLocation<'a>,
    /// The server of the agent.
    server: &'a Url,
    inputs: SchemaBundler<'a>,
    outputs: SchemaBundler<'a>,
    /// What the schemas may take when they are checked here: the operator's own bound is not known yet.
    budget: DocumentBudget<'static>,
}

/// A usable operation, or why it is left out.
type OperationResult<T> = Result<T, String>;

impl<'a> OperationReader<'a> {
    pub(super) fn new(
        document: &'a Map<String, Value>,
        dialect: SchemaDialect,
        location: DocumentLocation<'a>,
        server: &'a Url,
    ) -> Self {
        let bundler = |direction| SchemaBundler::new(document, dialect, direction);
        let (inputs, outputs) = (bundler(SchemaDirection::Input), bundler(SchemaDirection::Output));
        let budget = DocumentBudget::new(ContractConfig::default().schema_limits(), &[]);
        Self { document, location, server, inputs, outputs, budget }
    }

    /// Returns an object of the document, or the one that its reference leads to.
    pub(super) fn resolve_object<'v>(&self, value: &'v Value) -> OperationResult<&'v Map<String, Value>>
    where
        'a: 'v,
    {
        let mut value = value;
        for _ in 0..MAX_REFERENCES {
            let members = value.as_object().ok_or("it is not an object")?;
            let Some(reference) = members.get("$ref") else { return Ok(members) };
            let reference = reference.as_str().unwrap_or_default();
            // The root is an object, so that the first step is a member of it.
            let steps = reference.strip_prefix("#/").and_then(|path| path.split_once('/'));
            let target = steps.and_then(|(member, rest)| self.document.get(member)?.pointer(&format!("/{rest}")));
            value = target.ok_or_else(|| format!("the reference {} has no target here", quote_name(reference)))?;
        }
        Err(format!("more than {MAX_REFERENCES} references lead to it"))
    }

    /// Reads the operation of a path with this method. The inner error is why it is left out.
    ///
    /// # Errors
    /// The document as a whole exceeds a bound.
    pub(super) fn read_operation(
        &mut self,
        path: &str,
        method: &str,
        item: &Map<String, Value>,
        operation: &Value,
    ) -> Result<OperationResult<ConvertedOperation>, ConversionError> {
        let operation = match operation.as_object() {
            Some(operation) if method == "post" => operation,
            Some(_) => return Ok(Err("the gateway calls operations by POST".to_owned())),
            None => return Ok(Err("it is not an object".to_owned())),
        };
        let head = match self.read_head(path, item, operation) {
            Ok(head) => head,
            Err(why) => return Ok(Err(why)),
        };
        let inputs = match self.input_schema(&head.body).map(Option::transpose) {
            Ok(Ok(inputs)) => inputs,
            Ok(Err(SchemaError::Unusable(why))) | Err(why) => return Ok(Err(why)),
            Ok(Err(SchemaError::TooLarge(why))) => return Err(why.into()),
        };
        let mut notes = head.notes;
        let (outputs, output_formats) = match self.output_schema(operation) {
            Ok(output) => output,
            Err(SchemaError::TooLarge(why)) => return Err(why.into()),
            Err(SchemaError::Unusable(why)) => {
                notes.push(format!("paths: the output of POST {} is not described ({why})", quote_name(path)));
                (None, Vec::new())
            }
        };
        let mut document = json!({"name": head.name, "endpoint": head.url.path(), "description": head.description});
        if let Value::Object(members) = &mut document {
            match inputs {
                Some(inputs) => drop(members.insert("inputs".to_owned(), inputs)),
                None => drop(members.insert("inputFormats".to_owned(), json!(["application/json"]))),
            }
            members.extend(outputs.map(|outputs| ("outputs".to_owned(), outputs)));
            if !output_formats.is_empty() {
                members.insert("outputFormats".to_owned(), output_formats.into());
            }
        }
        Ok(Ok(ConvertedOperation { name: head.name, document, requirement: head.requirement, notes }))
    }

    /// Reads everything of an operation but its schemas.
    fn read_head(
        &self,
        path: &str,
        item: &Map<String, Value>,
        operation: &Map<String, Value>,
    ) -> OperationResult<OperationHead> {
        let named = match server_url(operation, self.location)? {
            None => server_url(item, self.location)?,
            named => named,
        };
        let server = named.as_ref().unwrap_or(self.server);
        if server.origin() != self.server.origin() {
            return Err("it is at another server than the agent".to_owned());
        }
        let url = operation_url(server, path)?;
        let body = operation.get("requestBody").ok_or("it takes no JSON body")?;
        let body = self.resolve_object(body).map_err(|why| format!("requestBody: {why}"))?.clone();
        let description = text_member(operation, "summary").or_else(|| text_member(operation, "description"));
        let parameters = self.required_parameters(item, operation)?;
        let description = description.unwrap_or_default().to_owned() + &parameters.text();
        let notes = parameters.note(path).into_iter().collect();
        let requirement = requirement_of_operation(operation, self.document)?;
        let name = match text_member(operation, "operationId") {
            Some(id) => operation_name(id),
            None => match path.trim_matches('/') {
                "" => "post".to_owned(),
                path => operation_name(path),
            },
        };
        Ok(OperationHead { name, url, body, description: description.trim().to_owned(), requirement, notes })
    }

    /// Returns the parameters that a call must have besides its body.
    fn required_parameters(
        &self,
        item: &Map<String, Value>,
        operation: &Map<String, Value>,
    ) -> OperationResult<RequiredParameters> {
        let (mut query, mut header) = (Vec::new(), Vec::new());
        for members in [item, operation] {
            let parameters = members.get("parameters").and_then(Value::as_array);
            if parameters.is_some_and(|parameters| parameters.len() > MAX_PARAMETERS) {
                return Err(format!("it has more than {MAX_PARAMETERS} parameters"));
            }
            for parameter in parameters.into_iter().flatten() {
                let parameter = self.resolve_object(parameter).map_err(|why| format!("parameters: {why}"))?;
                let name = truncate(text_member(parameter, "name").unwrap_or_default(), 100);
                if !parameter.get("required").and_then(Value::as_bool).unwrap_or(false) {
                    continue;
                }
                match text_member(parameter, "in") {
                    Some("query") => query.push(name),
                    Some("header") => header.push(name),
                    Some("cookie") => return Err("it requires a cookie, which the gateway does not pass".to_owned()),
                    _ => return Err("it requires a parameter that a call has no place for".to_owned()),
                }
            }
        }
        Ok(RequiredParameters { query, header })
    }

    /// Returns the schema of the JSON that the operation takes.
    fn input_schema(&mut self, body: &Map<String, Value>) -> OperationResult<Option<Result<Value, SchemaError>>> {
        let content = MediaContent::of(body);
        match content.json {
            Some(schema) => Ok(schema.map(|schema| usable_schema(self.inputs.bundle(schema)?, &self.budget))),
            None if content.media_types.is_empty() => Err("it takes no JSON body".to_owned()),
            None => Err(format!("it takes {} instead of JSON", quote_name(&content.media_types.join(", ")))),
        }
    }

    /// Returns the schema of successful outputs, where one response describes all of them, and their media types if these
    /// are not only JSON.
    fn output_schema(&mut self, operation: &Map<String, Value>) -> Result<(Option<Value>, Vec<Value>), SchemaError> {
        let mut successes = Vec::new();
        for (status, response) in operation.get("responses").and_then(Value::as_object).into_iter().flatten() {
            if status.starts_with('2') {
                successes.push(self.resolve_object(response).map_err(SchemaError::Unusable)?);
            }
        }
        let mut contents =
            successes.into_iter().map(MediaContent::of).filter(|content| !content.media_types.is_empty());
        let (Some(content), None) = (contents.next(), contents.next()) else { return Ok((None, Vec::new())) };
        drop(contents);
        let media_types = content.media_types.iter().filter(|media| content.has_other_types() && !media.contains('*'));
        let formats: Vec<Value> = media_types.map(|media| media.as_str().into()).collect();
        let schema = content.json.flatten().map(|schema| usable_schema(self.outputs.bundle(schema)?, &self.budget));
        Ok((schema.transpose()?, formats))
    }
}

/// An operation without its schemas.
struct OperationHead {
    name: String,
    url: Url,
    body: Map<String, Value>,
    description: String,
    requirement: Option<AuthAlternative>,
    notes: Vec<String>,
}

/// The names of the parameters that a call must have.
struct RequiredParameters {
    query: Vec<String>,
    header: Vec<String>,
}

impl RequiredParameters {
    /// Returns a text for callers.
    fn text(&self) -> String {
        let text = |label: &str, names: &[String]| match names {
            [] => String::new(),
            names => format!(" {label}: {}.", names.get(..MAX_NAMED_PARAMETERS).unwrap_or(names).join(", ")),
        };
        text("Required in the query", &self.query) + &text("Required header fields", &self.header)
    }

    /// Returns what operators should know: the query of a call reaches the agent, and header fields only if they say so.
    fn note(&self, path: &str) -> Option<String> {
        let names = quote_name(&self.header.join(", "));
        (!self.header.is_empty()).then(|| {
            format!(
                "paths: POST {} requires the header fields {names}, which reach the agent only where forwarded_headers \
                 lists them",
                quote_name(path)
            )
        })
    }
}

/// Returns a schema that contracts can be compiled from: one that cannot be used loses its operation, and not the agent.
fn usable_schema(schema: Value, budget: &DocumentBudget<'_>) -> Result<Value, SchemaError> {
    let schema = Arc::new(schema);
    match CompiledSchema::compile_within(&schema, budget) {
        Ok(compiled) => {
            drop(compiled);
            Ok(Arc::unwrap_or_clone(schema))
        }
        Err(why) => Err(SchemaError::Unusable(format!("its schema cannot be used: {why}"))),
    }
}
