//! Bodies that ask something: JSON, read strictly, and then member by member. What is wrong is gathered and told at
//! once, each with its place; members that nobody reads are left alone (R103).

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

/// Reads the body as one JSON value.
///
/// # Errors
/// `UnsupportedMediaType`, `PayloadTooLarge`, or `InvalidInput` with the place at which reading stopped.
pub(super) fn json(ask: &Ask<'_>, taken: &[&'static str], most: usize, depth: u16) -> Result<Value> {
    check(ask, taken, most)?;
    json::read(&ask.body, depth).map_err(|broken| {
        let violation = Violation { pointer: broken.pointer.clone(), message: broken.reason.clone() };
        Fault::new(Code::InvalidInput, format!("the body is not JSON: {broken}")).violations(vec![violation])
    })
}

/// Refuses a body by its head and its size.
///
/// # Errors
/// `UnsupportedMediaType` or `PayloadTooLarge`.
pub(super) fn check(ask: &Ask<'_>, taken: &[&'static str], most: usize) -> Result<()> {
    media::body(ask.headers, taken)?;
    match ask.body.len() > most {
        true => Err(Fault::new(Code::PayloadTooLarge, format!("the body is too large here (at most {most} bytes)"))),
        false => Ok(()),
    }
}

/// What is wrong with a body, so far.
#[derive(Debug, Default)]
pub(super) struct Wrong(Vec<Violation>);

impl Wrong {
    pub(super) fn say(&mut self, pointer: String, message: impl Into<String>) {
        // The first ones are enough to repair a request by.
        if self.0.len() < 20 {
            self.0.push(Violation { pointer, message: message.into() });
        }
    }

    /// # Errors
    /// `InvalidInput` with everything that was said, if anything was.
    pub(super) fn none(self, what: &'static str) -> Result<()> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(Fault::new(Code::InvalidInput, what).violations(self.0)),
        }
    }
}

/// The members of one object in a body. Each is named by a list: the first is its name, the others its other names.
#[derive(Clone, Debug)]
pub(super) struct Members<'a> {
    at: String,
    members: Option<&'a Map<String, Value>>,
}

impl<'a> Members<'a> {
    /// The members of the whole body.
    pub(super) fn of(value: &'a Value, wrong: &mut Wrong) -> Self {
        Self::at(String::new(), value, wrong)
    }

    fn at(at: String, value: &'a Value, wrong: &mut Wrong) -> Self {
        if !value.is_object() {
            wrong.say(at.clone(), format!("must be an object, not {}", json::kind(value)));
        }
        Self { at, members: value.as_object() }
    }

    /// The names that are there.
    pub(super) fn names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.members.into_iter().flat_map(|members| members.keys().map(String::as_str))
    }

    /// Where `name` is, as a JSON Pointer.
    pub(super) fn pointer(&self, name: &str) -> String {
        let mut pointer = self.at.clone();
        push_segment(&mut pointer, name);
        pointer
    }

    /// A member as it is, with its pointer; null is as good as absent.
    pub(super) fn value(&self, names: &[&str]) -> Option<(String, &'a Value)> {
        let found = |name: &&str| self.members?.get(*name).filter(|value| !value.is_null());
        names.iter().find_map(|name| Some((self.pointer(name), found(name)?)))
    }

    /// An object within.
    pub(super) fn object(&self, names: &[&str], wrong: &mut Wrong) -> Option<Self> {
        let (at, value) = self.value(names)?;
        Some(Self::at(at, value, wrong))
    }

    /// A text of at most `most` characters.
    pub(super) fn text(&self, names: &[&str], most: usize, wrong: &mut Wrong) -> Option<&'a str> {
        let (at, value) = self.value(names)?;
        match value.as_str() {
            Some(text) if text.chars().count() <= most => return Some(text),
            Some(_) => wrong.say(at, format!("must have at most {most} characters")),
            None => wrong.say(at, format!("must be a string, not {}", json::kind(value))),
        }
        None
    }

    /// A whole number within `bounds`.
    pub(super) fn number(&self, names: &[&str], bounds: RangeInclusive<u64>, wrong: &mut Wrong) -> Option<usize> {
        let (at, value) = self.value(names)?;
        let number = value.as_u64().filter(|number| bounds.contains(number));
        if number.is_none() {
            wrong.say(at, format!("must be a whole number from {} to {}", bounds.start(), bounds.end()));
        }
        number.and_then(|number| usize::try_from(number).ok())
    }

    /// One string, or a list of them, under any of the names.
    pub(super) fn words(&self, names: &[&str], wrong: &mut Wrong) -> Vec<String> {
        let mut words = Vec::new();
        for (at, value) in names.iter().filter_map(|name| self.value(&[name])) {
            let items = match value {
                Value::Array(items) => items.as_slice(),
                one => std::slice::from_ref(one),
            };
            let fits = |item: &Value| item.as_str().is_some_and(|text| text.chars().count() <= LONGEST_VALUE);
            if items.len() > MOST_VALUES || !items.iter().all(fits) {
                wrong.say(
                    at,
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
