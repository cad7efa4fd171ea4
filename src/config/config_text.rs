//! The configuration text: parses YAML into JSON values, remembers the line of every path, and applies overrides from
//! the environment. Checks only YAML syntax.

use super::{ConfigProblem, key_migration::RenamedKey, renamed_keys::current_name};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Location, Spanned};
use std::{collections::HashMap, fmt, ops::Range};

/// The prefix of variables that override the file: `GATEPOST__LIMITS__PER_CALLER=10/s`.
pub(super) const ENV_PREFIX: &str = "GATEPOST__";

/// A parsed configuration text, with the line of every path.
#[derive(Debug, Default)]
pub(super) struct ConfigText {
    pub(super) value: Value,
    lines: HashMap<String, u64>,
    overriding_variables: HashMap<String, String>,
    renamed: Vec<RenamedKey>,
    warnings: Vec<ConfigProblem>,
    conflicts: Vec<ConfigProblem>,
}

impl ConfigText {
    /// Parses YAML.
    ///
    /// # Errors
    /// The position at which the text is not YAML or repeats a key.
    pub(super) fn parse(text: &str) -> Result<Self, ConfigProblem> {
        let mut source = Self { value: Value::Object(Map::new()), ..Self::default() };
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(source);
        }
        let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
        let node: Spanned<YamlNode> = serde_saphyr::from_str_with_options(text, options).map_err(|why| {
            let line = why.location().map(|at| at.line());
            ConfigProblem {
                path: String::new(),
                line,
                message: format!("this is not YAML ({})", shorten_yaml_error(&why.to_string())),
            }
        })?;
        let value = source.flatten(node, String::new());
        if !value.is_null() {
            source.value = value;
        }
        Ok(source)
    }

    fn flatten(&mut self, node: Spanned<YamlNode>, path: String) -> Value {
        self.lines.insert(path.clone(), node.referenced.line());
        match node.value {
            YamlNode::Scalar(value) => value,
            YamlNode::List(items) => {
                let items = items.into_iter().enumerate();
                Value::Array(items.map(|(at, item)| self.flatten(item, format!("{path}[{at}]"))).collect())
            }
            YamlNode::Map(members) => {
                let mut object = Map::new();
                for (key, member) in members {
                    let name = self.resolve_key(&path, &key, &member);
                    let member_path = join_path(&path, &name);
                    let line = key.referenced.line();
                    let value = self.flatten(member, member_path.clone());
                    if !insert_at(&mut object, &name, value) {
                        let message = format!("'{}' is its former name, and both are present (remove one)", key.value);
                        self.conflicts.push(ConfigProblem { path: member_path, line: Some(line), message });
                    }
                }
                Value::Object(object)
            }
        }
    }

    /// Returns the current name of a key, and records the use of a former name.
    fn resolve_key(&mut self, section: &str, key: &Spanned<String>, value: &Spanned<YamlNode>) -> String {
        let Some(current) = current_name(section, &key.value) else {
            return key.value.clone();
        };
        let renamed = RenamedKey {
            section: section.to_owned(),
            former: key.value.clone(),
            current,
            line: key.referenced.line(),
            key: byte_range(key.referenced),
            value: byte_range(value.referenced),
        };
        self.warnings.push(renamed.warning());
        self.renamed.push(renamed);
        current.to_owned()
    }

    /// Returns the keys that are written with former names, in the order of the file.
    pub(super) fn renamed_keys(&self) -> &[RenamedKey] {
        &self.renamed
    }

    /// Returns a warning for each former name in the file and in the environment.
    pub(super) fn warnings(&self) -> &[ConfigProblem] {
        &self.warnings
    }

    /// Returns the keys that are written with both of their names.
    pub(super) fn conflicts(&self) -> &[ConfigProblem] {
        &self.conflicts
    }

    /// Applies the overrides of the environment. A value is read as JSON if it is JSON (numbers, booleans, lists,
    /// objects), and as a string otherwise. Names are case-insensitive.
    pub(super) fn apply_environment(&mut self, variables: impl Iterator<Item = (String, String)>) {
        let mut variables: Vec<_> = variables.filter(|(name, _)| name.starts_with(ENV_PREFIX)).collect();
        variables.sort();
        for (name, text) in variables {
            let steps = self.path_of_variable(&name);
            let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            let mut path = String::new();
            let mut slot = &mut self.value;
            for step in steps {
                // A value that cannot contain the step is replaced as a whole, and the variable is named in problems.
                let place = slot.is_object() || slot.is_null() || (slot.is_array() && step.parse::<usize>().is_ok());
                if !place {
                    self.overriding_variables.insert(path.clone(), name.clone());
                }
                slot = get_or_insert_child(slot, &step, &mut path);
            }
            *slot = value;
            self.overriding_variables.insert(path, name);
        }
    }

    /// Splits the name of a variable into the steps of a path, in current names. A former name causes a warning.
    fn path_of_variable(&mut self, variable: &str) -> Vec<String> {
        let written = variable.strip_prefix(ENV_PREFIX).unwrap_or_default().split("__").map(str::to_ascii_lowercase);
        let (mut steps, mut path, mut is_renamed) = (Vec::new(), String::new(), false);
        for step in written {
            let current = current_name(&path, &step);
            is_renamed |= current.is_some();
            let step = current.map_or(step, str::to_owned);
            path = if step.parse::<usize>().is_ok() { format!("{path}[{step}]") } else { join_path(&path, &step) };
            steps.extend(step.split('.').map(str::to_owned));
        }
        if is_renamed {
            let current = steps.join("__").to_ascii_uppercase();
            let message = format!("the environment variable {variable} is now {ENV_PREFIX}{current}");
            self.warnings.push(ConfigProblem { path: String::new(), line: None, message });
        }
        steps
    }

    /// Locates `path`: returns the line, or the overriding variable, of the path or of its nearest located ancestor.
    pub(super) fn locate(&self, path: &str) -> (Option<u64>, Option<&str>) {
        let mut at = path;
        loop {
            if let Some(variable) = self.overriding_variables.get(at) {
                return (None, Some(variable));
            }
            if let Some(line) = self.lines.get(at).filter(|line| **line > 0) {
                return (Some(*line), None);
            }
            match at.rfind(['.', '[']) {
                Some(cut) => at = at.get(..cut).unwrap_or_default(),
                None if at.is_empty() => return (None, None),
                None => at = "",
            }
        }
    }
}

/// Returns the bytes of the text at `location`.
fn byte_range(location: Location) -> Option<Range<usize>> {
    let span = location.span();
    let start = usize::try_from(span.byte_offset()?).ok()?;
    Some(start..start + usize::try_from(span.byte_len()?).ok()?)
}

/// Inserts `value` at `name`, or with `a.b` into the nested object `a`. Returns false if a value is there already.
fn insert_at(object: &mut Map<String, Value>, name: &str, value: Value) -> bool {
    match name.split_once('.') {
        Some((nested, name)) => {
            let nested = object.entry(nested).or_insert_with(|| Value::Object(Map::new()));
            nested.as_object_mut().is_some_and(|nested| insert_at(nested, name, value))
        }
        None => object.insert(name.to_owned(), value).is_none(),
    }
}

pub(super) fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Shortens the YAML parser's message: first line only, without its position and advice about parser options.
fn shorten_yaml_error(why: &str) -> &str {
    let why = why.lines().next().unwrap_or_default();
    let end = [" at line ", ", set ", "; use "].iter().filter_map(|tail| why.find(tail)).min();
    why.get(..end.unwrap_or(why.len())).unwrap_or(why)
}

/// Returns the member or item `step`, creating a missing one; an index beyond the end appends an item.
fn get_or_insert_child<'a>(slot: &'a mut Value, step: &str, path: &mut String) -> &'a mut Value {
    if let (Value::Array(_), Ok(at)) = (&*slot, step.parse::<usize>()) {
        let Value::Array(items) = slot else { return slot };
        let at = at.min(items.len());
        if at == items.len() {
            items.push(Value::Null);
        }
        path.push_str(&format!("[{at}]"));
        return items.get_mut(at).unwrap_or_else(|| unreachable!("the item was just made"));
    }
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    let Value::Object(members) = slot else { return slot };
    let known = members.keys().find(|name| name.eq_ignore_ascii_case(step)).cloned();
    let name = known.unwrap_or_else(|| step.to_owned());
    *path = join_path(path, &name);
    members.entry(name).or_insert(Value::Null)
}

/// A YAML node whose children know their lines.
enum YamlNode {
    Scalar(Value),
    List(Vec<Spanned<YamlNode>>),
    Map(Vec<(Spanned<String>, Spanned<YamlNode>)>),
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(YamlNodeVisitor)
    }
}

struct YamlNodeVisitor;

impl<'de> Visitor<'de> for YamlNodeVisitor {
    type Value = YamlNode;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a YAML value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<YamlNode, D::Error> {
        from.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<YamlNode, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element()? {
            items.push(item);
        }
        Ok(YamlNode::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<YamlNode, A::Error> {
        let mut members: Vec<(Spanned<String>, Spanned<YamlNode>)> = Vec::new();
        while let Some(key) = from.next_key::<Spanned<String>>()? {
            if members.iter().any(|(earlier, _)| earlier.value == key.value) {
                return Err(de::Error::custom(format!("'{}' appears twice", key.value)));
            }
            members.push((key, from.next_value()?));
        }
        Ok(YamlNode::Map(members))
    }
}
