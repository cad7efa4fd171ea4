//! Whether a configuration has the form of one: what the schema says, then what only the types know (an address,
//! a rate of zero). Every problem is told, each in words that say what to write; no value that may be a secret is
//! repeated.

use super::{File, Problem, schema, source::Source};
use crate::{
    contract::Schema,
    fault::Violation,
    unit::{FilePath, json::cut},
};
use serde_json::{Map, Value, json};
use serde_path_to_error::{Path as At, Segment};
use std::{collections::HashMap, path::Path};

/// Problems reported for one file.
const MOST: usize = 100;
/// Characters of a wrong value that are repeated.
const LONGEST: usize = 60;

/// The settings, with relative paths meant from `base`.
///
/// # Errors
/// Every problem of form.
pub(super) fn judge(source: &Source, base: &Path) -> Result<File, Vec<Problem>> {
    let schema = checkable(schema());
    let compiled = Schema::compile(&schema).map_err(|why| {
        let message = format!("the schema of the file is broken ({why})");
        vec![Problem { path: String::new(), line: None, message }]
    })?;
    let violations = compiled.check_all(&source.value, MOST);
    if violations.is_empty() {
        return read(source, base);
    }
    let mut problems: Vec<_> = violations.into_iter().map(|violation| told(violation, source, &schema)).collect();
    problems.sort_by_key(|problem| problem.line);
    Err(problems)
}

/// The schema in a form whose violations read well: what may be left out is judged by its own type where it is
/// there, and named choices are one list.
fn checkable(mut schema: Value) -> Value {
    match &mut schema {
        Value::Object(members) => {
            for member in members.values_mut() {
                *member = checkable(member.take());
            }
            rewrite(members);
        }
        Value::Array(items) => {
            for item in items {
                *item = checkable(item.take());
            }
        }
        _ => {}
    }
    schema
}

fn rewrite(members: &mut Map<String, Value>) {
    if let Some(Value::Array(either)) = members.get("anyOf")
        && let [one, null] = either.as_slice()
        && *null == json!({"type": "null"})
    {
        let one = one.clone();
        members.remove("anyOf");
        members.insert("if".to_owned(), json!({"not": {"type": "null"}}));
        members.insert("then".to_owned(), one);
    }
    if let Some(Value::Array(choices)) = members.get("oneOf") {
        let words: Option<Vec<Value>> = choices.iter().map(|choice| choice.get("const").cloned()).collect();
        if let Some(words) = words {
            members.remove("oneOf");
            members.insert("enum".to_owned(), Value::Array(words));
        }
    }
}

/// A violation as the reader of the file needs it.
fn told(violation: Violation, source: &Source, schema: &Value) -> Problem {
    let Violation { pointer, message } = violation;
    let path = super::dotted(&pointer, &source.value);
    if let Some(name) = message.strip_prefix("unknown property '").and_then(|rest| rest.split('\'').next()) {
        // The line of the key itself, not of the section around it.
        let (line, _) = source.locate(&super::source::join(&path, name));
        return Problem { line, ..super::placed(source, &path, message) };
    }
    let wanted = declared(schema, &pointer).and_then(|declared| hint(declared, source.value.pointer(&pointer)));
    super::placed(source, &path, wanted.unwrap_or(message))
}

/// What to write, where the type is one that is written as a text of its own kind.
fn hint(declared: &Value, given: Option<&Value>) -> Option<String> {
    let (pattern, what) = (declared.get("pattern")?.as_str()?, declared.get("description")?.as_str()?);
    let mut letters = what.trim_end_matches('.').chars();
    let what: String = letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect();
    // What stands where a secret should be named may be the secret itself.
    let secret = pattern.starts_with("^(env|file)");
    let given = match given {
        Some(scalar @ (Value::String(_) | Value::Number(_) | Value::Bool(_))) if !secret => {
            format!("{} is not understood", cut(&scalar.to_string(), LONGEST))
        }
        _ => "this is not understood".to_owned(),
    };
    Some(format!("{given} (write {what})"))
}

/// What the schema says of the value at `pointer`.
fn declared<'a>(root: &'a Value, pointer: &str) -> Option<&'a Value> {
    let follow = |mut schema: &'a Value| loop {
        let target = schema.get("$ref").and_then(Value::as_str).and_then(|to| root.pointer(to.strip_prefix('#')?));
        match target.or_else(|| schema.get("then")) {
            Some(next) => schema = next,
            None => return schema,
        }
    };
    let mut schema = root;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        let named = schema.get("properties").and_then(|properties| properties.get(&step));
        schema = follow(named.or_else(|| schema.get("items")).or_else(|| schema.get("additionalProperties"))?);
    }
    Some(schema)
}

/// Turns values into settings. What the types refuse is taken out and the rest looked at again, so that one bad
/// address does not hide another.
fn read(source: &Source, base: &Path) -> Result<File, Vec<Problem>> {
    let (mut value, mut taken, mut problems) = (source.value.clone(), Taken::default(), Vec::<Problem>::new());
    loop {
        let read = FilePath::relative_to(base, || serde_path_to_error::deserialize(&value));
        let why: serde_path_to_error::Error<serde_json::Error> = match read {
            Ok(file) if problems.is_empty() => return Ok(file),
            Ok(_) => break,
            Err(why) => why,
        };
        let path = taken.original(why.path());
        // What had to be taken out of it is missing now: that is no problem of its own.
        let follows = problems.iter().any(|problem| problem.path.starts_with(&path));
        if !follows || problems.is_empty() {
            problems.push(super::placed(source, &path, words(why.inner())));
        }
        if problems.len() >= MOST || taken.take(&mut value, why.path()).is_none() {
            break;
        }
    }
    problems.sort_by_key(|problem| problem.line);
    Err(problems)
}

/// The standard library's parsers do not say what they want.
fn words(why: &serde_json::Error) -> String {
    match why.to_string() {
        why if why.starts_with("invalid socket address") => {
            "this is not an address with a port (write 127.0.0.1:8080, 0.0.0.0:8443 or [::]:8443)".to_owned()
        }
        why => why,
    }
}

/// Items taken out of lists: which of the original ones are left, by the list's path.
#[derive(Default)]
struct Taken(HashMap<String, Vec<usize>>);

impl Taken {
    /// The path in the file as it was typed.
    fn original(&self, at: &At) -> String {
        at.iter().fold(String::new(), |path, segment| self.step(path, segment))
    }

    fn step(&self, path: String, segment: &Segment) -> String {
        match segment {
            Segment::Seq { index } => {
                let index = self.0.get(&path).and_then(|left| left.get(*index)).unwrap_or(index);
                format!("{path}[{index}]")
            }
            Segment::Map { key } => super::source::join(&path, key),
            Segment::Enum { .. } | Segment::Unknown => path,
        }
    }

    /// Takes the value at `at` out; `None` if that is the whole, or cannot be told.
    fn take(&mut self, value: &mut Value, at: &At) -> Option<()> {
        let segments: Vec<_> = at.iter().collect();
        let (last, above) = segments.split_last()?;
        let (mut holder, mut path) = (value, String::new());
        for segment in above {
            path = self.step(path, segment);
            holder = match segment {
                Segment::Seq { index } => holder.get_mut(*index)?,
                Segment::Map { key } => holder.get_mut(key)?,
                Segment::Enum { .. } | Segment::Unknown => return None,
            };
        }
        match (last, holder) {
            (Segment::Map { key }, Value::Object(members)) => members.remove(key).map(drop),
            (Segment::Seq { index }, Value::Array(items)) if *index < items.len() => {
                let left = self.0.entry(path).or_insert_with(|| (0..items.len()).collect());
                left.remove(*index);
                items.remove(*index);
                Some(())
            }
            _ => None,
        }
    }
}
