//! The parameters of an operation: what a request's path, query and header fields say of them, as one object that a schema
//! checks: `{"path": {…}, "query": {…}, "header": {…}}`.

use super::schema_bundle::{SchemaBundle, SchemaSource};
use crate::{
    contract::{ContractConfig, DocumentBudget, OperationContract, TextTypes},
    fault::{Fault, FaultCode, Result},
    transport::forwarded_header_problem,
    values::{form_pairs, percent_decode},
};
use http::{HeaderMap, HeaderName, header};
use serde_json::{Map, Value, json};

/// The most parameters of an operation.
pub(super) const MAX_PARAMETERS: usize = 64;
/// The most fuel of finding the types of one parameter; beyond it, its values are strings.
const MAX_TYPE_FUEL: u64 = 1_000_000;
/// The most parameters of a query that is checked.
const MAX_QUERY_PARAMETERS: usize = 256;
/// Header fields that OpenAPI describes elsewhere (OpenAPI 3.1.0 §4.8.12.1).
const DESCRIBED_ELSEWHERE: [HeaderName; 3] = [header::ACCEPT, header::CONTENT_TYPE, header::AUTHORIZATION];

/// The parameters of an operation.
#[derive(Debug)]
pub(super) struct OperationParameters {
    parameters: Box<[Parameter]>,
    /// The header fields among them that agents may receive from callers.
    pub(super) headers: Box<[HeaderName]>,
    pub(super) contract: OperationContract,
}

#[derive(Debug)]
struct Parameter {
    name: Box<str>,
    place: ParameterPlace,
    form: ValueForm,
    types: TextTypes,
}

#[derive(Debug)]
enum ParameterPlace {
    /// By its position in the template of the path.
    Path(usize),
    Query,
    Header(HeaderName),
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueForm {
    /// One text.
    Text,
    /// A parameter of the query for each item.
    Repeated,
    /// Items with a character between them.
    Separated(char),
    /// JSON.
    Json,
}

/// What the parameters of a request are read from.
#[derive(Clone, Copy)]
pub(super) struct ParameterSources<'r> {
    /// What the parameters of the path stand for.
    pub(super) captures: &'r [&'r str],
    pub(super) query: Option<&'r str>,
    pub(super) headers: &'r HeaderMap,
}

impl OperationParameters {
    /// Compiles the parameters of an operation; `None` if none of them is checked. `path_names` are those of the path's
    /// template.
    ///
    /// # Errors
    /// Why a parameter cannot be checked.
    pub(super) fn compile<'a>(
        definitions: &[&'a Value],
        path_names: &[Box<str>],
        source: &SchemaSource<'a>,
        config: &ContractConfig,
        budget: &DocumentBudget<'_>,
    ) -> std::result::Result<Option<Self>, String> {
        if definitions.len() > MAX_PARAMETERS {
            return Err(format!("has more than {MAX_PARAMETERS} parameters"));
        }
        let mut bundle = SchemaBundle::new(source);
        let (mut parameters, mut sections) = (Vec::new(), SectionSchemas::default());
        for definition in definitions {
            let name = definition.get("name").and_then(Value::as_str).ok_or("a parameter has no name")?;
            let within = |why: String| format!("{name}: {why}");
            let place = match definition.get("in").and_then(Value::as_str) {
                Some("path") => {
                    let position = path_names.iter().position(|known| **known == *name);
                    ParameterPlace::Path(position.ok_or_else(|| within("is not in the path".to_owned()))?)
                }
                Some("query") => ParameterPlace::Query,
                Some("header") => {
                    let name = HeaderName::try_from(name).map_err(|_| within("is not a header name".to_owned()))?;
                    if DESCRIBED_ELSEWHERE.contains(&name) {
                        continue;
                    }
                    ParameterPlace::Header(name)
                }
                // Cookies reach no agent.
                Some("cookie") => continue,
                _ => return Err(within("is neither in path, query, header nor cookie".to_owned())),
            };
            let content =
                definition.get("content").and_then(Value::as_object).and_then(|content| content.values().next());
            let schema = content.unwrap_or(definition).get("schema");
            let types = match schema {
                Some(schema) => {
                    TextTypes::of_schema(&SchemaBundle::bundle(source, schema).map_err(within)?, MAX_TYPE_FUEL)
                }
                None => TextTypes::default(),
            };
            let style = definition.get("style").and_then(Value::as_str);
            let explodes = definition.get("explode").and_then(Value::as_bool);
            let form = match (&place, style) {
                _ if content.is_some() => ValueForm::Json,
                // An object is spread over parameters of other names, which pass unread.
                (ParameterPlace::Query, Some("deepObject")) | (_, Some("label" | "matrix")) => continue,
                _ if types.is_object() => continue,
                _ if !types.is_list() => ValueForm::Text,
                (ParameterPlace::Query, None | Some("form")) if explodes.unwrap_or(true) => ValueForm::Repeated,
                (ParameterPlace::Query, Some("spaceDelimited")) => ValueForm::Separated(' '),
                (ParameterPlace::Query, Some("pipeDelimited")) => ValueForm::Separated('|'),
                (_, None | Some("form" | "simple")) => ValueForm::Separated(','),
                (_, Some(_)) => continue,
            };
            let converted = schema.map_or(Ok(Value::Bool(true)), |schema| bundle.add(schema)).map_err(within)?;
            let is_required = definition.get("required") == Some(&Value::Bool(true));
            sections.add(&place, name, converted, is_required);
            parameters.push(Parameter { name: name.into(), place, form, types });
        }
        if parameters.is_empty() {
            return Ok(None);
        }
        let schema = bundle.finish(sections.into_schema())?;
        let contract = OperationContract::compile_input(&schema.into(), config, budget)?;
        let headers = parameters.iter().filter_map(|parameter| match &parameter.place {
            ParameterPlace::Header(name) if forwarded_header_problem(name.as_str()).is_none() => Some(name.clone()),
            _ => None,
        });
        Ok(Some(Self { headers: headers.collect(), parameters: parameters.into(), contract }))
    }

    /// Returns the parameters of a request as one object.
    ///
    /// # Errors
    /// 400 for a path or query that is not percent-encoded UTF-8, and for too many parameters.
    pub(super) fn value_of(&self, sources: ParameterSources<'_>) -> Result<Value> {
        let has_query = self.parameters.iter().any(|parameter| matches!(parameter.place, ParameterPlace::Query));
        let query = if has_query { parse_query(sources.query.unwrap_or_default())? } else { Vec::new() };
        let (mut in_path, mut in_query, mut in_header) = (Map::new(), Map::new(), Map::new());
        for parameter in &self.parameters {
            let values: Vec<String> = match &parameter.place {
                ParameterPlace::Path(position) => {
                    sources.captures.get(*position).map(|text| decode(text)).transpose()?.into_iter().collect()
                }
                ParameterPlace::Query => {
                    let own = query.iter().filter(|(name, _)| **name == *parameter.name);
                    own.map(|(_, value)| value.clone()).collect()
                }
                ParameterPlace::Header(name) => {
                    let values = sources.headers.get_all(name).iter();
                    values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
                }
            };
            let Some(value) = parameter.convert(values) else { continue };
            let section = match parameter.place {
                ParameterPlace::Path(_) => &mut in_path,
                ParameterPlace::Query => &mut in_query,
                ParameterPlace::Header(_) => &mut in_header,
            };
            section.insert(parameter.name.to_string(), value);
        }
        Ok(json!({"path": in_path, "query": in_query, "header": in_header}))
    }
}

impl Parameter {
    /// Returns the value of the texts that a request has, if it has any.
    fn convert(&self, texts: Vec<String>) -> Option<Value> {
        if texts.is_empty() {
            return None;
        }
        Some(match self.form {
            ValueForm::Repeated => texts.into_iter().map(|text| self.types.convert_item(text)).collect(),
            ValueForm::Separated(separator) => {
                let items = texts.iter().flat_map(|text| text.split(separator));
                items.map(|text| self.types.convert_item(text.trim().to_owned())).collect()
            }
            // A repeated value is a list, which the schema refuses.
            ValueForm::Text | ValueForm::Json if texts.len() > 1 => texts.into_iter().map(Value::String).collect(),
            ValueForm::Text => texts.into_iter().map(|text| self.types.convert(text)).next()?,
            ValueForm::Json => {
                let text = texts.into_iter().next()?;
                serde_json::from_str(&text).unwrap_or(Value::String(text))
            }
        })
    }
}

/// The schemas of the parameters, by their place.
#[derive(Default)]
struct SectionSchemas {
    path: SectionSchema,
    query: SectionSchema,
    header: SectionSchema,
}

#[derive(Default)]
struct SectionSchema {
    properties: Map<String, Value>,
    required: Vec<Value>,
}

impl SectionSchemas {
    fn add(&mut self, place: &ParameterPlace, name: &str, schema: Value, is_required: bool) {
        let section = match place {
            ParameterPlace::Path(_) => &mut self.path,
            ParameterPlace::Query => &mut self.query,
            ParameterPlace::Header(_) => &mut self.header,
        };
        section.properties.insert(name.to_owned(), schema);
        if is_required {
            section.required.push(json!(name));
        }
    }

    fn into_schema(self) -> Value {
        let section = |SectionSchema { properties, required }| json!({"type": "object", "properties": properties, "required": required});
        json!({"type": "object", "properties": {
            "path": section(self.path), "query": section(self.query), "header": section(self.header),
        }})
    }
}

fn decode(text: &str) -> Result<String> {
    percent_decode(text).ok_or_else(|| Fault::new(FaultCode::InvalidInput, "The path is not percent-encoded UTF-8"))
}

/// Returns the parameters of a query, decoded.
fn parse_query(query: &str) -> Result<Vec<(String, String)>> {
    let mut parameters = Vec::new();
    for pair in form_pairs(query) {
        if parameters.len() == MAX_QUERY_PARAMETERS {
            let message = format!("The query has more than {MAX_QUERY_PARAMETERS} parameters");
            return Err(Fault::new(FaultCode::InvalidInput, message));
        }
        let malformed = || Fault::new(FaultCode::InvalidInput, "The query is not percent-encoded UTF-8");
        parameters.push(pair.ok_or_else(malformed)?);
    }
    Ok(parameters)
}
