//! Parses AIDIP metadata documents into [`Agent`]s. Reports every problem of a document at once and keeps unknown
//! fields (R15, R103).

use super::{Agent, AgentId, AuthKind, Authentication, Deprecation, Operation, Status, Versions};
use crate::unit::{Rate, json};
use serde_json::{Map, Value};
use std::{collections::HashSet, num::NonZeroU32, sync::Arc, time::Duration};

/// Maximum number of operations in one document.
const MOST_OPERATIONS: usize = 256;

/// Path segments under an agent that cannot name an operation.
const RESERVED: &[&str] = &["invoke", "agent.json", "agent-card.json", "openapi.json", "history", ".well-known"];

impl Agent {
    /// Parses one metadata document.
    ///
    /// # Errors
    /// Every reason why the document is refused, each prefixed with the field's name.
    pub fn from_document(document: &Value, digest: [u8; 32]) -> Result<Self, Vec<String>> {
        let Value::Object(fields) = document else {
            return Err(vec![format!("an agent's document must be an object, not {}", json::kind(document))]);
        };
        let mut read = Reader { fields, problems: Vec::new() };
        let id = read.parsed::<AgentId>("id");
        let name = read.text("name", true);
        let version = read.version();
        let endpoint = read.parsed("endpoint");
        let (capabilities, tags) = (read.words("capabilities"), read.words("tags"));
        let authentication = read.authentication();
        let status = read.status();
        let operations = read.operations();
        let rates = read.rates();
        let batch = read.flag("batch");
        let default_operation = read.default_operation(&operations);
        let description = read.text("description", false).unwrap_or_default().into();
        let publisher = read.text("publisher", false).map(Into::into);
        let languages = read.words("supported_languages");
        let (Some(id), Some(endpoint), true) = (id, endpoint, read.problems.is_empty()) else {
            return Err(read.problems);
        };
        let name = name.unwrap_or_else(|| id.to_string());
        let versions = Versions::read(version.as_deref(), fields);
        Ok(Self {
            id,
            name,
            description,
            publisher,
            languages,
            version,
            versions,
            capabilities,
            tags,
            endpoint,
            authentication,
            status,
            operations,
            rates,
            batch,
            default_operation,
            digest,
            document: document.to_string().into(),
        })
    }
}

struct Reader<'a> {
    fields: &'a Map<String, Value>,
    problems: Vec<String>,
}

impl Reader<'_> {
    fn problem(&mut self, text: impl Into<String>) {
        self.problems.push(text.into());
    }

    /// Returns `None` for a field that is absent or null; records a problem for a field of another type.
    fn text(&mut self, field: &str, required: bool) -> Option<String> {
        match self.fields.get(field) {
            Some(Value::String(text)) => return Some(text.clone()),
            None | Some(Value::Null) if required => self.problem(format!("{field}: is required")),
            None | Some(Value::Null) => {}
            Some(other) => self.problem(format!("{field}: must be a string, not {}", json::kind(other))),
        }
        None
    }

    fn parsed<T: std::str::FromStr<Err = String>>(&mut self, field: &str) -> Option<T> {
        let text = self.text(field, true)?;
        text.parse().map_err(|why| self.problem(format!("{field}: {why}"))).ok()
    }

    /// R74: an unquoted `3.1.4` is a number or invalid JSON. The problem says how to write the version instead.
    fn version(&mut self) -> Option<String> {
        if let Some(Value::Number(number)) = self.fields.get("version") {
            self.problem(format!("version: must be a string; write \"{number}\" in quotes"));
            return None;
        }
        self.text("version", false)
    }

    fn words(&mut self, field: &str) -> Vec<Arc<str>> {
        match self.fields.get(field) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) if items.iter().all(Value::is_string) => {
                items.iter().filter_map(Value::as_str).map(Arc::from).collect()
            }
            Some(_) => {
                self.problem(format!("{field}: must be an array of strings"));
                Vec::new()
            }
        }
    }

    fn flag(&mut self, field: &str) -> bool {
        match self.fields.get(field) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                self.problem(format!("{field}: must be true or false"));
                false
            }
        }
    }

    /// R12. An unknown type refuses the document: guessing could expose the agent.
    fn authentication(&mut self) -> Authentication {
        let fields = match self.fields.get("authentication") {
            None | Some(Value::Null) => return Authentication::default(),
            Some(Value::Object(fields)) => fields,
            Some(_) => {
                self.problem("authentication: must be an object");
                return Authentication::default();
            }
        };
        let kind = match fields.get("type") {
            Some(Value::String(kind)) => match kind.as_str() {
                "api_key" => AuthKind::ApiKey,
                "oauth2_bearer" => AuthKind::Bearer,
                "mtls" => AuthKind::Mtls,
                "none" => AuthKind::Open,
                other => {
                    self.problem(format!(
                        "authentication.type: '{other}' is unknown (api_key, oauth2_bearer, mtls, none)"
                    ));
                    AuthKind::Open
                }
            },
            _ => {
                self.problem("authentication.type: is required (api_key, oauth2_bearer, mtls, none)");
                AuthKind::Open
            }
        };
        let mut inner = Reader { fields, problems: Vec::new() };
        let scopes = inner.words("scopes").iter().map(|scope| scope.to_string()).collect();
        self.problems.extend(inner.problems.into_iter().map(|problem| format!("authentication.{problem}")));
        let scopes: Vec<String> = scopes;
        if !scopes.is_empty() && kind != AuthKind::Bearer {
            // Only a token carries scopes; admitting another credential would silently ignore them.
            self.problem("authentication.scopes: require authentication.type oauth2_bearer");
        }
        Authentication { kind, scopes }
    }

    fn status(&mut self) -> Status {
        match self.text("status", false).as_deref() {
            None | Some("active" | "available") => Status::Active,
            Some("inactive" | "unavailable") => Status::Inactive,
            Some("deprecated") => Status::Deprecated(self.deprecation()),
            Some(other) => {
                self.problem(format!("status: '{other}' is unknown (active, inactive, deprecated)"));
                Status::Inactive
            }
        }
    }

    fn deprecation(&mut self) -> Deprecation {
        let successor = self
            .text("successor", false)
            .and_then(|id| id.parse().map_err(|why| self.problem(format!("successor: {why}"))).ok());
        Deprecation { since: self.moment("deprecated_at"), sunset: self.moment("sunset"), successor }
    }

    fn moment(&mut self, field: &str) -> Option<i64> {
        let text = self.text(field, false)?;
        let moment = time::OffsetDateTime::parse(&text, &time::format_description::well_known::Rfc3339);
        moment
            .map_err(|_| self.problem(format!("{field}: must be an RFC 3339 date-time")))
            .ok()
            .map(|at| at.unix_timestamp())
    }

    /// R13, R14: accepts both styles. A document with neither has one operation that accepts any input.
    fn operations(&mut self) -> Vec<Operation> {
        let listed = match self.fields.get("operations") {
            None | Some(Value::Null) => &[],
            Some(Value::Array(listed)) if listed.len() <= MOST_OPERATIONS => listed.as_slice(),
            Some(_) => {
                self.problem(format!("operations: must be an array of at most {MOST_OPERATIONS} objects"));
                return Vec::new();
            }
        };
        if listed.is_empty() {
            let (inputs, outputs) = (self.schema("inputs"), self.schema("outputs"));
            return vec![Operation { name: "".into(), description: "".into(), inputs, outputs }];
        }
        let mut names = HashSet::new();
        let mut operations = Vec::with_capacity(listed.len());
        for (at, fields) in listed.iter().enumerate() {
            let Value::Object(fields) = fields else {
                self.problem(format!("operations[{at}]: must be an object"));
                continue;
            };
            let mut inner = Reader { fields, problems: Vec::new() };
            let name = inner.operation_name();
            if name.as_deref().is_some_and(|name| !names.insert(name.to_owned())) {
                inner.problem("name: appears twice in this document");
            }
            let (inputs, outputs) = (inner.schema("inputs"), inner.schema("outputs"));
            let description = inner.text("description", false).unwrap_or_default().into();
            self.problems.extend(inner.problems.into_iter().map(|problem| format!("operations[{at}].{problem}")));
            operations.push(Operation { name: name.unwrap_or_default().into(), description, inputs, outputs });
        }
        operations
    }

    fn default_operation(&mut self, operations: &[Operation]) -> Option<usize> {
        let name = self.text("default_operation", false)?;
        let found = operations.iter().position(|operation| *operation.name == *name);
        if found.is_none() {
            self.problem("default_operation: must be the name of one of the operations");
        }
        found
    }

    fn operation_name(&mut self) -> Option<String> {
        let name = self.text("name", true)?;
        if !AgentId::fits(&name) || RESERVED.contains(&name.as_str()) {
            self.problem(
                "name: must be 1 to 128 characters of A-Z a-z 0-9 . _ - and not a reserved word (invoke, agent.json, agent-card.json, openapi.json, history, .well-known)",
            );
        }
        Some(name)
    }

    fn schema(&mut self, field: &str) -> Option<Arc<Value>> {
        match self.fields.get(field) {
            None | Some(Value::Null) => None,
            Some(schema @ (Value::Object(_) | Value::Bool(_))) => Some(Arc::new(schema.clone())),
            Some(other) => {
                self.problem(format!("{field}: must be a JSON Schema object, not {}", json::kind(other)));
                None
            }
        }
    }

    /// Rate limits are not standardised (R15): accepts a rate string, a list of them, or members such as
    /// `max_calls_per_minute: 60`. An unreadable form refuses the document, because ignoring it would drop a limit.
    fn rates(&mut self) -> Vec<Rate> {
        let Some(asked) = self.fields.get("rate_limits").or_else(|| self.fields.get("rate_limit")) else {
            return Vec::new();
        };
        let rates: Option<Vec<Rate>> = match asked {
            Value::Null => Some(Vec::new()),
            Value::String(rate) => rate.parse().ok().map(|rate| vec![rate]),
            Value::Array(items) => items.iter().map(|item| item.as_str()?.parse().ok()).collect(),
            Value::Object(members) => members.iter().map(|(name, count)| per(name, count)).collect(),
            _ => None,
        };
        rates.unwrap_or_else(|| {
            self.problem(
                "rate_limits: write a rate (\"60/min\"), a list of rates, or members such as max_calls_per_minute: 60",
            );
            Vec::new()
        })
    }
}

fn per(name: &str, count: &Value) -> Option<Rate> {
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
