//! Parser of AIDIP metadata documents. Reports every problem of a document at once, and keeps unknown fields (R15,
//! R103).

use super::{
    AgentId, AgentStatus, Authentication, AuthenticationMethod, DeclaredFormats, Deprecation, MAX_URI_LEN, Operation,
    operation::is_undeclared_schema,
};
use crate::values::{Rate, edit_distance, json};
use serde_json::{Map, Value};
use std::{collections::HashSet, num::NonZeroU32, sync::Arc, time::Duration};

/// Maximum number of operations in one document.
const MAX_OPERATIONS: usize = 256;

/// Path segments under an agent that cannot be names of operations.
const RESERVED_OPERATION_NAMES: &[&str] =
    &["invoke", "agent.json", "agent-card.json", "openapi.json", "history", ".well-known"];

/// Reads the fields of a document, and collects the problems of all of them.
pub(super) struct DocumentReader<'a> {
    fields: &'a Map<String, Value>,
    pub(super) problems: Vec<String>,
    /// Members that are ignored, each with the reason: no specification defines what they mean.
    pub(super) ignored_members: Vec<String>,
}

impl<'a> DocumentReader<'a> {
    pub(super) fn new(fields: &'a Map<String, Value>) -> Self {
        Self { fields, problems: Vec::new(), ignored_members: Vec::new() }
    }

    fn add_problem(&mut self, text: impl Into<String>) {
        self.problems.push(text.into());
    }

    /// Returns `None` if the field is absent or null. Records a problem if it has another type.
    pub(super) fn parse_string(&mut self, field: &str, required: bool) -> Option<String> {
        match self.fields.get(field) {
            Some(Value::String(text)) => return Some(text.clone()),
            None | Some(Value::Null) if required => {
                let similar = self.fields.keys().find(|name| is_misspelt(name, field));
                let hint = similar.map(|name| format!(" (write {field} instead of {name:?})")).unwrap_or_default();
                self.add_problem(format!("{field}: is required{hint}"));
            }
            None | Some(Value::Null) => {}
            Some(other) => self.add_problem(format!("{field}: must be a string, not {}", json::type_name(other))),
        }
        None
    }

    pub(super) fn parse_field<T: std::str::FromStr<Err = String>>(&mut self, field: &str) -> Option<T> {
        let text = self.parse_string(field, true)?;
        text.parse().map_err(|why| self.add_problem(format!("{field}: {why}"))).ok()
    }

    /// Parses the version, which must be a string (R74): an unquoted `3.1` is a number. The problem has the correct
    /// form.
    pub(super) fn parse_version(&mut self) -> Option<String> {
        if let Some(Value::Number(number)) = self.fields.get("version") {
            self.add_problem(format!("version: must be a string (write \"{number}\" in quotes)"));
            return None;
        }
        self.parse_string("version", false)
    }

    pub(super) fn parse_string_list(&mut self, field: &str) -> Vec<Arc<str>> {
        match self.fields.get(field) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) if items.iter().all(Value::is_string) => {
                items.iter().filter_map(Value::as_str).map(Arc::from).collect()
            }
            Some(_) => {
                self.add_problem(format!("{field}: must be an array of strings"));
                Vec::new()
            }
        }
    }

    pub(super) fn parse_bool(&mut self, field: &str) -> bool {
        match self.fields.get(field) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                self.add_problem(format!("{field}: must be true or false"));
                false
            }
        }
    }

    /// Parses `authentication` (R12). A document with an unknown type is refused, because a guess could expose the
    /// agent.
    pub(super) fn parse_authentication(&mut self) -> Authentication {
        let fields = match self.fields.get("authentication") {
            None | Some(Value::Null) => return Authentication::default(),
            Some(Value::Object(fields)) => fields,
            Some(_) => {
                self.add_problem("authentication: must be an object");
                return Authentication::default();
            }
        };
        let known_types = || AuthenticationMethod::ALL.map(AuthenticationMethod::document_type).join(", ");
        let method = match fields.get("type") {
            Some(Value::String(name)) => AuthenticationMethod::from_document_type(name).unwrap_or_else(|| {
                self.add_problem(format!("authentication.type: '{name}' is unknown ({})", known_types()));
                AuthenticationMethod::Anonymous
            }),
            _ => {
                self.add_problem(format!("authentication.type: is required ({})", known_types()));
                AuthenticationMethod::Anonymous
            }
        };
        let mut reader = DocumentReader::new(fields);
        let scopes: Vec<String> = reader.parse_string_list("scopes").iter().map(|scope| scope.to_string()).collect();
        self.problems.extend(reader.problems.into_iter().map(|problem| format!("authentication.{problem}")));
        if !scopes.is_empty() && !method.has_scopes() {
            // With a credential that has no scopes they would be ignored.
            let with_scopes = AuthenticationMethod::ALL.into_iter().filter(|method| method.has_scopes());
            let names: Vec<&str> = with_scopes.map(AuthenticationMethod::document_type).collect();
            self.add_problem(format!("authentication.scopes: require authentication.type {}", names.join(" or ")));
        }
        Authentication { method, scopes, refuses_anonymous: false }
    }

    pub(super) fn parse_status(&mut self) -> AgentStatus {
        match self.parse_string("status", false).as_deref() {
            None | Some("active" | "available") => AgentStatus::Active,
            Some("inactive" | "unavailable") => AgentStatus::Inactive,
            Some("deprecated") => AgentStatus::Deprecated(self.parse_deprecation()),
            Some(other) => {
                self.add_problem(format!("status: '{other}' is unknown (active, inactive, deprecated)"));
                AgentStatus::Inactive
            }
        }
    }

    fn parse_deprecation(&mut self) -> Deprecation {
        let successor = self
            .parse_string("successor", false)
            .and_then(|id| id.parse().map_err(|why| self.add_problem(format!("successor: {why}"))).ok());
        Deprecation {
            deprecated_at: self.parse_date_time("deprecated_at"),
            sunset: self.parse_date_time("sunset"),
            successor,
        }
    }

    fn parse_date_time(&mut self, field: &str) -> Option<i64> {
        let text = self.parse_string(field, false)?;
        let time = time::OffsetDateTime::parse(&text, &time::format_description::well_known::Rfc3339);
        time.map_err(|_| self.add_problem(format!("{field}: must be an RFC 3339 date-time")))
            .ok()
            .map(|at| at.unix_timestamp())
    }

    /// Parses both styles of operations (R13, R14). A document with neither has one operation that accepts any input.
    pub(super) fn parse_operations(&mut self) -> Vec<Operation> {
        let items = match self.fields.get("operations") {
            None | Some(Value::Null) => &[],
            Some(Value::Array(items)) if items.len() <= MAX_OPERATIONS => items.as_slice(),
            Some(_) => {
                self.add_problem(format!("operations: must be an array of at most {MAX_OPERATIONS} objects"));
                return Vec::new();
            }
        };
        if items.is_empty() {
            let (inputs, outputs) = (self.parse_schema("inputs"), self.parse_schema("outputs"));
            let formats = DeclaredFormats::from_members(self.fields, self.fields);
            let (name, description) = ("".into(), "".into());
            return vec![Operation { name, description, inputs, outputs, formats, endpoint: None }];
        }
        let mut names = HashSet::new();
        let mut operations = Vec::with_capacity(items.len());
        for (at, fields) in items.iter().enumerate() {
            let Value::Object(fields) = fields else {
                self.add_problem(format!("operations[{at}]: must be an object"));
                continue;
            };
            let mut reader = DocumentReader::new(fields);
            let name = reader.parse_operation_name();
            if name.as_deref().is_some_and(|name| !names.insert(name.to_owned())) {
                reader.add_problem("name: appears twice in this document");
            }
            let (inputs, outputs) = (reader.parse_schema("inputs"), reader.parse_schema("outputs"));
            let description = reader.parse_string("description", false).unwrap_or_default().into();
            let endpoint = reader.parse_operation_endpoint();
            reader.check_template_length();
            let ignored_members = reader.ignored_members.into_iter().map(|member| format!("operations[{at}].{member}"));
            self.ignored_members.extend(ignored_members);
            self.problems.extend(reader.problems.into_iter().map(|problem| format!("operations[{at}].{problem}")));
            let formats = DeclaredFormats::from_members(fields, self.fields);
            let name = name.unwrap_or_default().into();
            operations.push(Operation { name, description, inputs, outputs, formats, endpoint });
        }
        operations
    }

    pub(super) fn find_default_operation(&mut self, operations: &[Operation]) -> Option<usize> {
        let name = self.parse_string("default_operation", false)?;
        let index = operations.iter().position(|operation| *operation.name == *name);
        if index.is_none() {
            self.add_problem("default_operation: must be the name of one of the operations");
        }
        index
    }

    fn parse_operation_name(&mut self) -> Option<String> {
        let name = self.parse_string("name", true)?;
        if !AgentId::is_valid(&name) || RESERVED_OPERATION_NAMES.contains(&name.as_str()) {
            self.add_problem(
                "name: must be 1 to 128 characters of A-Z a-z 0-9 . _ - and not a reserved word (invoke, agent.json, agent-card.json, openapi.json, history, .well-known)",
            );
        }
        Some(name)
    }

    /// Parses the address of an operation, which no specification defines: one that is not a string is ignored.
    fn parse_operation_endpoint(&mut self) -> Option<Box<str>> {
        match self.fields.get("endpoint") {
            Some(Value::String(endpoint)) => return Some(endpoint.as_str().into()),
            None | Some(Value::Null) => {}
            Some(other) => {
                let why = format!("endpoint: must be a string, not {}, and is ignored", json::type_name(other));
                self.ignored_members.push(why);
            }
        }
        None
    }

    /// Ignores a template (R157) that is longer than the name that it stands for may be.
    fn check_template_length(&mut self) {
        let template = self.fields.get("uriTemplate").and_then(Value::as_str);
        if template.is_some_and(|template| template.len() > MAX_URI_LEN) {
            self.ignored_members.push(format!("uriTemplate: is longer than {MAX_URI_LEN} bytes, and may be ignored"));
        }
    }

    fn parse_schema(&mut self, field: &str) -> Option<Arc<Value>> {
        match self.fields.get(field) {
            None | Some(Value::Null) => None,
            // A registry may have added it.
            Some(Value::Object(schema)) if is_undeclared_schema(schema) => None,
            Some(schema @ (Value::Object(_) | Value::Bool(_))) => Some(Arc::new(schema.clone())),
            Some(other) => {
                self.add_problem(format!("{field}: must be a JSON Schema object, not {}", json::type_name(other)));
                None
            }
        }
    }

    /// Parses the rate limits, whose form is not standardised (R15): a rate, a list of rates, or members such as
    /// `max_calls_per_minute: 60`. A document with another form is refused, so that no limit is ignored.
    pub(super) fn parse_rate_limits(&mut self) -> Vec<Rate> {
        let Some(declared) = self.fields.get("rate_limits").or_else(|| self.fields.get("rate_limit")) else {
            return Vec::new();
        };
        let rates: Option<Vec<Rate>> = match declared {
            Value::Null => Some(Vec::new()),
            Value::String(rate) => rate.parse().ok().map(|rate| vec![rate]),
            Value::Array(items) => items.iter().map(|item| item.as_str()?.parse().ok()).collect(),
            Value::Object(members) => members.iter().map(|(name, count)| rate_from_member(name, count)).collect(),
            _ => None,
        };
        rates.unwrap_or_else(|| {
            self.add_problem(
                "rate_limits: is malformed (write a rate such as \"60/min\", a list of rates, or members such as max_calls_per_minute: 60)",
            );
            Vec::new()
        })
    }
}

fn rate_from_member(name: &str, count: &Value) -> Option<Rate> {
    let (_, unit) = name.rsplit_once("per_")?;
    let seconds = match unit {
        "second" | "sec" => 1,
        "minute" | "min" => 60,
        "hour" => 3_600,
        "day" => 86_400,
        _ => return None,
    };
    let count = NonZeroU32::new(u32::try_from(count.as_u64()?).ok()?)?;
    Some(Rate::new(count, Duration::from_secs(seconds)))
}

/// Returns whether `name` is `field` with one letter too many, too few, replaced or exchanged with the next.
fn is_misspelt(name: &str, field: &str) -> bool {
    let letters: Vec<char> = name.to_ascii_lowercase().chars().collect();
    // Of short names, one letter is too much of the name.
    name.eq_ignore_ascii_case(field) || (field.len() > 3 && edit_distance(&letters, field, 1).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_one_mistake_is_recognised() {
        for name in ["endpont", "endpoit", "endpointt", "enpdoint", "Endpoint", "endpoimt", "xendpoint"] {
            assert!(is_misspelt(name, "endpoint"), "{name}");
        }
        for name in ["", "end", "endpoints2", "url", "address"] {
            assert!(!is_misspelt(name, "endpoint"), "{name}");
        }
        assert!(!is_misspelt("ix", "id") && !is_misspelt("x", "id"));
    }
}
