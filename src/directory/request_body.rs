//! Request bodies: strict JSON, then typed access to members. Violations are collected and reported together, each
//! with its JSON Pointer; unknown members are ignored (R103).

use super::{
    DirectoryCall, media_types,
    query_params::{MAX_LIST_VALUES, MAX_VALUE_CHARS},
};
use crate::{
    fault::{Fault, FaultCode, Result, Violation},
    values::json::{self, push_pointer_segment},
};
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// Parses the body as one JSON value.
///
/// # Errors
/// `UnsupportedMediaType`, `PayloadTooLarge`, or `InvalidInput` with the location of the syntax error.
pub(super) fn parse_json_body(
    call: &DirectoryCall<'_>,
    media_types: &[&'static str],
    max_bytes: usize,
    depth: u16,
) -> Result<Value> {
    check_body(call, media_types, max_bytes)?;
    json::parse(&call.body, depth).map_err(|error| {
        let violation = Violation::new(error.pointer.clone(), error.reason.clone());
        Fault::new(FaultCode::InvalidInput, format!("The body is not JSON: {error}")).with_violations(vec![violation])
    })
}

/// Checks the media type and the size of a body.
///
/// # Errors
/// `UnsupportedMediaType` or `PayloadTooLarge`.
pub(super) fn check_body(call: &DirectoryCall<'_>, media_types: &[&'static str], max_bytes: usize) -> Result<()> {
    media_types::check_content_type(call.headers, media_types)?;
    if call.body.len() > max_bytes {
        Err(Fault::new(FaultCode::PayloadTooLarge, format!("The body is too large (at most {max_bytes} bytes)")))
    } else {
        Ok(())
    }
}

/// Violations found in a body so far.
#[derive(Debug, Default)]
pub(super) struct Violations(Vec<Violation>);

impl Violations {
    pub(super) fn add(&mut self, pointer: String, message: impl Into<String>) {
        // The first ones are enough to correct a request.
        if self.0.len() < 20 {
            self.0.push(Violation::new(pointer, message));
        }
    }

    /// Returns an error if there are violations.
    ///
    /// # Errors
    /// `InvalidInput` with all violations.
    pub(super) fn into_result(self, message: &'static str) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Fault::new(FaultCode::InvalidInput, message).with_violations(self.0))
        }
    }
}

/// Members of one object in a body. Each accessor takes a list of names: the canonical one and its aliases.
#[derive(Clone, Debug)]
pub(super) struct BodyMembers<'a> {
    pointer: String,
    members: Option<&'a Map<String, Value>>,
}

impl<'a> BodyMembers<'a> {
    /// Returns the members of the whole body.
    pub(super) fn new(value: &'a Value, violations: &mut Violations) -> Self {
        Self::at_pointer(String::new(), value, violations)
    }

    fn at_pointer(pointer: String, value: &'a Value, violations: &mut Violations) -> Self {
        if !value.is_object() {
            violations.add(pointer.clone(), format!("must be an object, not {}", json::type_name(value)));
        }
        Self { pointer, members: value.as_object() }
    }

    /// Returns the names of the present members.
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.members.into_iter().flat_map(|members| members.keys().map(String::as_str))
    }

    /// Returns the JSON Pointer of `name`.
    pub(super) fn member_pointer(&self, name: &str) -> String {
        let mut pointer = self.pointer.clone();
        push_pointer_segment(&mut pointer, name);
        pointer
    }

    /// Returns a member with its pointer; null counts as absent.
    pub(super) fn member(&self, names: &[&str]) -> Option<(String, &'a Value)> {
        let present = |name: &&str| self.members?.get(*name).filter(|value| !value.is_null());
        names.iter().find_map(|name| Some((self.member_pointer(name), present(name)?)))
    }

    /// Returns a member that is an object.
    pub(super) fn object(&self, names: &[&str], violations: &mut Violations) -> Option<Self> {
        let (pointer, value) = self.member(names)?;
        Some(Self::at_pointer(pointer, value, violations))
    }

    /// Returns a string of at most `max_chars` characters.
    pub(super) fn text(&self, names: &[&str], max_chars: usize, violations: &mut Violations) -> Option<&'a str> {
        let (pointer, value) = self.member(names)?;
        match value.as_str() {
            Some(text) if text.chars().count() <= max_chars => return Some(text),
            Some(_) => violations.add(pointer, format!("must have at most {max_chars} characters")),
            None => violations.add(pointer, format!("must be a string, not {}", json::type_name(value))),
        }
        None
    }

    /// Returns a whole number within `bounds`.
    pub(super) fn number(
        &self,
        names: &[&str],
        bounds: RangeInclusive<u64>,
        violations: &mut Violations,
    ) -> Option<usize> {
        let (pointer, value) = self.member(names)?;
        // As in JSON Schema, 10.0 is a whole number.
        let integral = || value.as_f64().and_then(|number| number.to_string().parse().ok());
        let number = value.as_u64().or_else(integral).filter(|number| bounds.contains(number));
        if number.is_none() {
            violations.add(pointer, format!("must be a whole number from {} to {}", bounds.start(), bounds.end()));
        }
        number.and_then(|number| usize::try_from(number).ok())
    }

    /// Returns the strings of all members with these names; each is a string or an array of strings.
    pub(super) fn strings(&self, names: &[&str], violations: &mut Violations) -> Vec<String> {
        let mut strings = Vec::new();
        for (pointer, value) in names.iter().filter_map(|name| self.member(&[name])) {
            let items = match value {
                Value::Array(items) => items.as_slice(),
                single => std::slice::from_ref(single),
            };
            let is_valid = |item: &Value| item.as_str().is_some_and(|text| text.chars().count() <= MAX_VALUE_CHARS);
            if items.len() > MAX_LIST_VALUES || !items.iter().all(is_valid) {
                violations.add(
                    pointer,
                    format!(
                        "must be a string or an array of at most {MAX_LIST_VALUES} strings of {MAX_VALUE_CHARS} \
                         characters"
                    ),
                );
                continue;
            }
            strings.extend(
                items
                    .iter()
                    .filter_map(Value::as_str)
                    .map(str::trim)
                    .filter(|text| !text.is_empty())
                    .map(str::to_owned),
            );
        }
        strings
    }
}
