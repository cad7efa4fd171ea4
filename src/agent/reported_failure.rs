//! Failures that an agent reports in the body of a success (R40): `error`, `success: false`, `ok: false` and
//! `status: failed`. The rules are narrow, because a body that only mentions an error is a result: a member that the
//! operation's output schema declares is data, and beside a member that could be a result only `error` counts.

use memchr::memchr2;
use serde_json::{Map, Value};

/// Maximum number of subschemas that are searched for declared members.
const MAX_SUBSCHEMAS: usize = 256;

/// Members that may report a failure.
const FAILURE_MEMBERS: [&str; 4] = ["error", "success", "ok", "status"];

/// The codes with which some agents say in `error` that there was none.
const SUCCESS_CODES: [&str; 4] = ["0", "ok", "success", "none"];

/// The values of `status` that state a failure, in any case.
const FAILED_STATUSES: [&str; 3] = ["error", "failed", "failure"];

/// The values of `status` that state a success, in any case.
const SUCCEEDED_STATUSES: [&str; 4] = ["ok", "success", "succeeded", "completed"];

/// Members that may accompany an error; any other member may be a result.
const ERROR_COMPANION_MEMBERS: &[&str] = &[
    "code",
    "conversation_id",
    "correlation_id",
    "correlationId",
    "detail",
    "details",
    "error",
    "errorCode",
    "errorMessage",
    "errorType",
    "error_code",
    "error_description",
    "error_message",
    "error_type",
    "errors",
    "message",
    "msg",
    "ok",
    "path",
    "reason",
    "request_id",
    "requestId",
    "session_id",
    "status",
    "statusText",
    "status_code",
    "statusCode",
    "success",
    "task_id",
    "timestamp",
    "trace",
    "traceback",
    "trace_id",
    "traceId",
    "type",
];

/// Members of an envelope that hold the result. Empty, they hold none.
const RESULT_MEMBERS: &[&str] = &["data", "output", "result", "results"];

/// The members `error`, `success`, `ok` and `status` that an output schema declares, and that are data therefore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeclaredMembers(u8);

impl DeclaredMembers {
    /// Returns the members that a schema declares, also in subschemas of the same place.
    pub fn of_schema(schema: &Value) -> Self {
        let mut search = MemberSearch { root: schema, found: Self::default(), remaining: MAX_SUBSCHEMAS };
        search.visit(schema, 0);
        search.found
    }

    /// Returns whether the schema declares one of the members that may report a failure.
    pub fn has(self, name: &str) -> bool {
        FAILURE_MEMBERS.iter().position(|member| *member == name).is_some_and(|bit| self.0 & (1 << bit) != 0)
    }
}

/// A search of declared members through the subschemas that apply to the same place.
struct MemberSearch<'s> {
    root: &'s Value,
    found: DeclaredMembers,
    remaining: usize,
}

impl<'s> MemberSearch<'s> {
    fn visit(&mut self, schema: &'s Value, depth: u8) {
        if depth > 16 || self.remaining == 0 {
            return;
        }
        self.remaining -= 1;
        let required = schema.get("required").and_then(Value::as_array);
        for (bit, name) in FAILURE_MEMBERS.iter().enumerate() {
            let is_property = schema.get("properties").is_some_and(|properties| properties.get(name).is_some());
            let is_required = required.is_some_and(|names| names.iter().any(|each| each == name));
            self.found.0 |= u8::from(is_property || is_required) << bit;
        }
        // Patterns are not matched here: any of them may mean these members.
        if schema.get("patternProperties").and_then(Value::as_object).is_some_and(|patterns| !patterns.is_empty()) {
            self.found = DeclaredMembers(u8::MAX);
        }
        for subschema in schema.get("dependentSchemas").and_then(Value::as_object).into_iter().flat_map(Map::values) {
            self.visit(subschema, depth + 1);
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            for subschema in schema.get(keyword).and_then(Value::as_array).into_iter().flatten() {
                self.visit(subschema, depth + 1);
            }
        }
        for keyword in ["if", "then", "else"] {
            if let Some(subschema) = schema.get(keyword) {
                self.visit(subschema, depth + 1);
            }
        }
        if let Some(reference) = ["$ref", "$dynamicRef"].iter().find_map(|keyword| schema.get(keyword)?.as_str()) {
            let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
            match target {
                Some(subschema) => self.visit(subschema, depth + 1),
                // An anchor or an embedded schema, which may declare any of them.
                None => self.found = DeclaredMembers(u8::MAX),
            }
        }
    }
}

/// Returns whether a body reports a failure of the call.
///
/// - `error` with a text, or an object with a text as `code`, `message` or `type`, if no other member could be a
///   result, if a member states the failure, or if `error` stands beside the members `data` or `result`. A numeric
///   `code` means A2A, whose clients read the error themselves.
/// - `success: false`, `ok: false`, or `status` with `error`, `failed` or `failure`, if no other member could be a
///   result; an empty member of an envelope is none. A status beside `task_id` is that of the task.
pub fn reports_failure(body: &Map<String, Value>, declared: DeclaredMembers) -> bool {
    let flag = |name: &str| body.get(name).and_then(Value::as_bool);
    let status = body.get("status").and_then(Value::as_str).unwrap_or_default();
    let is_status = |name: &&str| status.eq_ignore_ascii_case(name);
    let is_failed_status = FAILED_STATUSES.iter().any(is_status);
    let succeeded = flag("success") == Some(true) || flag("ok") == Some(true);
    if !declared.has("error") && !succeeded && has_error(body) {
        let is_envelope = body.contains_key("data") || body.contains_key("result");
        let states_success = SUCCEEDED_STATUSES.iter().any(is_status);
        let states_failure = flag("success") == Some(false) || flag("ok") == Some(false) || is_failed_status;
        if states_failure || (is_envelope && !states_success) || has_no_result(body) {
            return true;
        }
    }
    let is_stated = |name: &str| flag(name) == Some(false) && !declared.has(name);
    let has_failed = is_stated("success")
        || is_stated("ok")
        || (is_failed_status && !declared.has("status") && !body.contains_key("task_id"));
    has_failed && !succeeded && has_empty_result(body)
}

fn has_error(body: &Map<String, Value>) -> bool {
    match body.get("error") {
        Some(Value::Object(error)) => {
            let text =
                |name: &str| error.get(name).is_some_and(|value| value.as_str().is_some_and(|text| !text.is_empty()));
            let code = error.get("code").and_then(Value::as_str).unwrap_or_default();
            let is_success = SUCCESS_CODES.iter().any(|success| code.eq_ignore_ascii_case(success));
            !is_success
                && !error.get("code").is_some_and(Value::is_number)
                && (text("code") || text("message") || text("type"))
        }
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Bool(true)) => body.get("message").is_some_and(Value::is_string),
        _ => false,
    }
}

/// Whether no member of the body could be a result.
fn has_no_result(body: &Map<String, Value>) -> bool {
    body.iter().all(|(name, value)| is_no_result(name, value))
}

/// Whether no member of the body could be a result, except for members of an envelope that are empty.
fn has_empty_result(body: &Map<String, Value>) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    let is_empty_result = |name: &str, value: &Value| RESULT_MEMBERS.contains(&name) && is_empty(value);
    body.iter().all(|(name, value)| is_no_result(name, value) || is_empty_result(name, value))
}

fn is_no_result(name: &str, value: &Value) -> bool {
    value.is_null() || ERROR_COMPANION_MEMBERS.contains(&name)
}

/// The result of [`scan_members`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberScan {
    /// Complete, without a member that could report a failure.
    NoErrorMember,
    /// With a member that could report a failure, or with a name that contains escapes.
    ErrorMember,
    /// Ends inside a value.
    Truncated,
}

/// Scans the members of the top level without parsing values, except those that could state a failure. A body that is no
/// object or array has no members.
pub fn scan_members(body: &[u8]) -> MemberScan {
    let Some(start) = body.iter().position(|b| !b.is_ascii_whitespace()) else {
        return MemberScan::NoErrorMember;
    };
    let mut rest = body.get(start..).unwrap_or_default();
    if !matches!(rest.first(), Some(b'{' | b'[')) {
        return MemberScan::NoErrorMember;
    }
    let is_object = rest.first() == Some(&b'{');
    let (mut depth, mut at_name) = (0_usize, false);
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'{' | b'[' => {
                depth += 1;
                at_name = is_object && depth == 1;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return MemberScan::NoErrorMember;
                }
            }
            b',' => at_name = is_object && depth == 1,
            b'"' => {
                let Some((text, after)) = split_string(rest) else {
                    return MemberScan::Truncated;
                };
                if std::mem::take(&mut at_name) && may_report_failure(text, after) {
                    return MemberScan::ErrorMember;
                }
                rest = after;
            }
            _ => {}
        }
    }
    MemberScan::Truncated
}

/// Returns whether a member may report a failure, by its name and by the value that begins in `after`. A value that is
/// not there yet may.
fn may_report_failure(name: &[u8], after: &[u8]) -> bool {
    let value = || {
        let is_separator = |byte: &u8| byte.is_ascii_whitespace() || *byte == b':';
        let start = after.iter().position(|byte| !is_separator(byte)).unwrap_or(after.len());
        after.get(start..).unwrap_or_default()
    };
    match name {
        b"error" | b"errors" | b"__error__" => true,
        b"success" | b"ok" => matches!(value().first(), None | Some(b'f')),
        b"status" => match value().split_first() {
            None => true,
            Some((b'"', text)) => split_string(text).is_none_or(|(text, _)| {
                text.contains(&b'\\')
                    || FAILED_STATUSES.iter().any(|status| text.eq_ignore_ascii_case(status.as_bytes()))
            }),
            Some(_) => false,
        },
        name => name.contains(&b'\\'),
    }
}

/// Splits `text` after the quote that ends a JSON string.
fn split_string(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        if text.get(at) == Some(&b'"') {
            return Some((text.get(..at)?, text.get(at + 1..)?));
        }
        // Skips the escaped character, which never ends the string.
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn declared(schema: &Value) -> Vec<&'static str> {
        let members = DeclaredMembers::of_schema(schema);
        FAILURE_MEMBERS.into_iter().filter(|name| members.has(name)).collect()
    }

    #[test]
    fn r33_declared_members_are_found_in_every_subschema_of_the_same_place() {
        let property = |name: &str| json!({"properties": {name: {}}});
        let schema = json!({
            "properties": {"error": {}},
            "allOf": [{"$ref": "#/$defs/flag"}],
            "oneOf": [{"anyOf": [property("status")]}],
            "if": property("x"), "then": {"properties": {"ok": {}}},
            "$defs": {"flag": property("success")},
        });
        assert_eq!(declared(&schema), FAILURE_MEMBERS);
        let nested = json!({"properties": {"result": {"properties": {"error": {}, "ok": {}}}}, "not": property("ok")});
        assert!(declared(&nested).is_empty());
        assert!(declared(&json!(true)).is_empty());
        for schema in [
            json!({"required": ["status"], "if": {}}),
            json!({"dependentSchemas": {"reason": property("status")}}),
            json!({"if": property("status")}),
        ] {
            assert_eq!(declared(&schema), ["status"], "{schema}");
        }
        // What the search does not follow may declare any member.
        for schema in [
            json!({"patternProperties": {"^st": {}}}),
            json!({"$ref": "#out", "$defs": {"out": {"$anchor": "out"}}}),
            json!({"$ref": "other.json"}),
        ] {
            assert_eq!(declared(&schema), FAILURE_MEMBERS, "{schema}");
        }
    }

    #[test]
    fn r40_an_error_beside_a_result_is_a_failure_unless_it_says_that_there_was_none() {
        let fails = |body: Value| reports_failure(body.as_object().unwrap(), DeclaredMembers::default());
        assert!(fails(json!({"error": {"code": "E17", "message": "no card"}, "data": {"n": 1}})));
        assert!(fails(json!({"error": "no card", "result": null})));
        for code in ["0", "ok", "OK", "Success", "NONE"] {
            assert!(!fails(json!({"error": {"code": code, "message": "success"}, "data": {"n": 1}})), "{code}");
        }
        for error in [json!(null), json!(""), json!({}), json!(false), json!([])] {
            assert!(!fails(json!({"error": error, "data": {"n": 1}})), "{error}");
        }
    }

    #[test]
    fn r127_a_schema_that_refers_to_itself_costs_a_bounded_search() {
        let loops = json!({"allOf": vec![json!({"$ref": "#"}); 50], "$ref": "#"});
        let mut search = MemberSearch { root: &loops, found: DeclaredMembers::default(), remaining: MAX_SUBSCHEMAS };
        search.visit(&loops, 0);
        assert_eq!(search.remaining, 0);
    }
}
