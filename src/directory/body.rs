//! Request bodies: strict JSON, then typed access to members. Violations are collected and reported together, each
//! with its JSON Pointer; unknown members are ignored (R103).

use super::{
    Ask, media,
    query::{LONGEST_VALUE, MOST_VALUES},
};
use crate::{
    fault::{Code, Fault, Result, Violation},
    unit::json::{self, push_segment},
};
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// Parses the body as one JSON value.
///
/// # Errors
/// `UnsupportedMediaType`, `PayloadTooLarge`, or `InvalidInput` with the location of the syntax error.
pub(super) fn json(call: &Ask<'_>, taken: &[&'static str], most: usize, depth: u16) -> Result<Value> {
    check(call, taken, most)?;
    json::read(&call.body, depth).map_err(|broken| {
        let violation = Violation { pointer: broken.pointer.clone(), message: broken.reason.clone() };
        Fault::new(Code::InvalidInput, format!("The body is not JSON: {broken}")).violations(vec![violation])
    })
}

/// Checks the media type and the size of a body.
///
/// # Errors
/// `UnsupportedMediaType` or `PayloadTooLarge`.
pub(super) fn check(call: &Ask<'_>, taken: &[&'static str], most: usize) -> Result<()> {
    media::body(call.headers, taken)?;
    match call.body.len() > most {
        true => Err(Fault::new(Code::PayloadTooLarge, format!("The body is too large (at most {most} bytes)"))),
        false => Ok(()),
    }
}

/// Violations found in a body so far.
#[derive(Debug, Default)]
pub(super) struct Wrong(Vec<Violation>);

impl Wrong {
    pub(super) fn say(&mut self, pointer: String, message: impl Into<String>) {
        // The first ones are enough to correct a request.
        if self.0.len() < 20 {
            self.0.push(Violation { pointer, message: message.into() });
        }
    }

    /// # Errors
    /// `InvalidInput` with all violations, if there are any.
    pub(super) fn none(self, what: &'static str) -> Result<()> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(Fault::new(Code::InvalidInput, what).violations(self.0)),
        }
    }
}

/// Members of one object in a body. Each accessor takes a list of names: the canonical one and its aliases.
#[derive(Clone, Debug)]
pub(super) struct Members<'a> {
    at: String,
    members: Option<&'a Map<String, Value>>,
}

impl<'a> Members<'a> {
    /// Returns the members of the whole body.
    pub(super) fn of(value: &'a Value, violations: &mut Wrong) -> Self {
        Self::at(String::new(), value, violations)
    }

    fn at(at: String, value: &'a Value, violations: &mut Wrong) -> Self {
        if !value.is_object() {
            violations.say(at.clone(), format!("must be an object, not {}", json::kind(value)));
        }
        Self { at, members: value.as_object() }
    }

    /// Returns the names of the present members.
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.members.into_iter().flat_map(|members| members.keys().map(String::as_str))
    }

    /// Returns the JSON Pointer of `name`.
    pub(super) fn pointer(&self, name: &str) -> String {
        let mut pointer = self.at.clone();
        push_segment(&mut pointer, name);
        pointer
    }

    /// Returns a member with its pointer; null counts as absent.
    pub(super) fn value(&self, names: &[&str]) -> Option<(String, &'a Value)> {
        let found = |name: &&str| self.members?.get(*name).filter(|value| !value.is_null());
        names.iter().find_map(|name| Some((self.pointer(name), found(name)?)))
    }

    /// Returns a member that is an object.
    pub(super) fn object(&self, names: &[&str], violations: &mut Wrong) -> Option<Self> {
        let (at, value) = self.value(names)?;
        Some(Self::at(at, value, violations))
    }

    /// Returns a string of at most `max_chars` characters.
    pub(super) fn text(&self, names: &[&str], most: usize, violations: &mut Wrong) -> Option<&'a str> {
        let (at, value) = self.value(names)?;
        match value.as_str() {
            Some(text) if text.chars().count() <= most => return Some(text),
            Some(_) => violations.say(at, format!("must have at most {most} characters")),
            None => violations.say(at, format!("must be a string, not {}", json::kind(value))),
        }
        None
    }

    /// Returns a whole number within `bounds`.
    pub(super) fn number(&self, names: &[&str], bounds: RangeInclusive<u64>, violations: &mut Wrong) -> Option<usize> {
        let (at, value) = self.value(names)?;
        let number = value.as_u64().filter(|number| bounds.contains(number));
        if number.is_none() {
            violations.say(at, format!("must be a whole number from {} to {}", bounds.start(), bounds.end()));
        }
        number.and_then(|number| usize::try_from(number).ok())
    }

    /// Returns the strings of all members with these names; each is a string or an array of strings.
    pub(super) fn words(&self, names: &[&str], violations: &mut Wrong) -> Vec<String> {
        let mut words = Vec::new();
        for (pointer, value) in names.iter().filter_map(|name| self.value(&[name])) {
            let items = match value {
                Value::Array(items) => items.as_slice(),
                one => std::slice::from_ref(one),
            };
            let fits = |item: &Value| item.as_str().is_some_and(|text| text.chars().count() <= LONGEST_VALUE);
            if items.len() > MOST_VALUES || !items.iter().all(fits) {
                violations.say(
                    pointer,
                    format!(
                        "must be a string or an array of at most {MOST_VALUES} strings of {LONGEST_VALUE} characters"
                    ),
                );
                continue;
            }
            words.extend(
                items
                    .iter()
                    .filter_map(Value::as_str)
                    .map(str::trim)
                    .filter(|word| !word.is_empty())
                    .map(str::to_owned),
            );
        }
        words
    }
}
