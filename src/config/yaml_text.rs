//! The configuration text: parses YAML into a JSON value, records the line of every path, gives former keys their
//! current names, and applies overrides from the environment. Checks YAML syntax only.

use super::{
    config_problem::ConfigProblem, format_hint, key_path::join_path, renamed_key::RenamedKey,
    renamed_keys::current_name,
};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Location, Spanned};
use std::{collections::HashMap, fmt, ops::Range};

/// A parsed configuration text, with the line of every path.
#[derive(Debug, Default)]
pub(super) struct ConfigText {
    pub(super) value: Value,
    lines: HashMap<String, u64>,
    /// The lines of the keys of members, where those of their values may come later.
    key_lines: HashMap<String, u64>,
    pub(super) overriding_variables: HashMap<String, String>,
    renamed: Vec<RenamedKey>,
    pub(super) warnings: Vec<ConfigProblem>,
    /// Variables that look like overrides and are none.
    pub(super) ignored_variables: Vec<String>,
    conflicts: Vec<ConfigProblem>,
}

impl ConfigText {
    /// Parses YAML.
    ///
    /// # Errors
    /// The position at which the text is not YAML or repeats a key.
    pub(super) fn parse(text: &str) -> Result<Self, ConfigProblem> {
        let mut config_text = Self { value: Value::Object(Map::new()), ..Self::default() };
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(config_text);
        }
        let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
        let node: Spanned<YamlNode> = serde_saphyr::from_str_with_options(text, options).map_err(|why| {
            let line = why.location().map(|location| location.line());
            ConfigProblem {
                path: String::new(),
                line,
                message: format!("this is not YAML ({})", shorten_yaml_error(&why.to_string())),
            }
        })?;
        let value = config_text.flatten(node, String::new());
        if !value.is_null() {
            config_text.value = value;
        }
        Ok(config_text)
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
                    let current = self.current_name(&path, &key, &member);
                    let member_path = join_path(&path, current.unwrap_or(&key.value));
                    let line = key.referenced.line();
                    self.key_lines.insert(member_path.clone(), line);
                    let value = self.flatten(member, member_path.clone());
                    let steps = current.map_or_else(|| vec![&*key.value], |current| current.split('.').collect());
                    if !insert_at(&mut object, &steps, value) {
                        let message = "is present twice, once with a former name (remove one)".to_owned();
                        self.conflicts.push(ConfigProblem { path: member_path, line: Some(line), message });
                    }
                }
                Value::Object(object)
            }
        }
    }

    /// Returns the current name of a key that is written with a former name, and records it.
    fn current_name(
        &mut self,
        section: &str,
        key: &Spanned<String>,
        value: &Spanned<YamlNode>,
    ) -> Option<&'static str> {
        let current = current_name(section, &key.value)?;
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
        Some(current)
    }

    /// Returns the keys with former names, in the order of the file.
    pub(super) fn renamed_keys(&self) -> &[RenamedKey] {
        &self.renamed
    }

    /// Returns the line at which each setting begins: that of its key, or that of an item of a list.
    pub(super) fn setting_lines(&self) -> HashMap<String, u64> {
        let mut lines = self.lines.clone();
        lines.extend(self.key_lines.iter().map(|(path, line)| (path.clone(), *line)));
        lines
    }

    /// Returns a warning for each former name in the file and in the environment.
    pub(super) fn warnings(&self) -> &[ConfigProblem] {
        &self.warnings
    }

    /// Returns the keys that are present with both names.
    pub(super) fn conflicts(&self) -> &[ConfigProblem] {
        &self.conflicts
    }

    /// Locates `path`: returns the line, or the overriding variable, of the path or of its nearest ancestor that has
    /// one.
    fn locate(&self, path: &str) -> (Option<u64>, Option<&str>) {
        let mut ancestor = path;
        loop {
            if let Some(variable) = self.overriding_variables.get(ancestor) {
                return (None, Some(variable));
            }
            if let Some(line) = self.lines.get(ancestor).filter(|line| **line > 0) {
                return (Some(*line), None);
            }
            if let Some(variable) = self.variable_within(ancestor) {
                return (None, Some(variable));
            }
            match ancestor.rfind(['.', '[']) {
                Some(cut) => ancestor = ancestor.get(..cut).unwrap_or_default(),
                None if ancestor.is_empty() => return (None, None),
                None => ancestor = "",
            }
        }
    }

    /// Returns a variable that sets a member of the section at `path`, which the file does not have.
    fn variable_within(&self, path: &str) -> Option<&str> {
        let is_within = |member: &str| {
            !path.is_empty() && member.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', '[']))
        };
        let variables = self.overriding_variables.iter().filter(|(member, _)| is_within(member));
        variables.map(|(_, variable)| variable.as_str()).min()
    }

    /// Returns the line of a setting that the file has, and that the environment does not override.
    pub(super) fn line_of_setting(&self, path: &str) -> Option<u64> {
        let line = self.lines.get(path).copied().filter(|line| *line > 0);
        line.filter(|_| !self.overriding_variables.contains_key(path))
    }

    /// Adds to a problem its line or the variable that set the value, and a hint about the format.
    pub(super) fn locate_problem(&self, path: &str, message: String) -> ConfigProblem {
        let (line, variable) = self.locate(path);
        let message = format_hint::add_place_hint(path, format_hint::add_format_hint(path, message));
        let message = format_hint::add_successor_hint(path, message);
        let message = match variable {
            Some(variable) => format!("{message} (set by the environment variable {variable})"),
            None => message,
        };
        ConfigProblem { path: path.to_owned(), line, message }
    }
}

/// Returns the range of bytes of `location`.
fn byte_range(location: Location) -> Option<Range<usize>> {
    let location_span = location.span();
    let start = usize::try_from(location_span.byte_offset()?).ok()?;
    Some(start..start + usize::try_from(location_span.byte_len()?).ok()?)
}

/// Inserts `value` at the path `steps` within `object`. Returns false if a value is there already.
fn insert_at(object: &mut Map<String, Value>, steps: &[&str], value: Value) -> bool {
    match steps {
        [] => false,
        [name] => object.insert((*name).to_owned(), value).is_none(),
        [section, rest @ ..] => {
            let section = object.entry(*section).or_insert_with(|| Value::Object(Map::new()));
            section.as_object_mut().is_some_and(|section| insert_at(section, rest, value))
        }
    }
}

/// Shortens the YAML parser's message: first line only, without its position and advice about parser options.
fn shorten_yaml_error(message: &str) -> &str {
    let message = message.lines().next().unwrap_or_default();
    let cut = [" at line ", ", set ", "; use "].iter().filter_map(|marker| message.find(marker)).min();
    message.get(..cut.unwrap_or(message.len())).unwrap_or(message)
}

/// A YAML node; its children have their positions.
pub(super) enum YamlNode {
    Scalar(Value),
    List(Vec<Spanned<YamlNode>>),
    Map(Vec<(Spanned<String>, Spanned<YamlNode>)>),
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlNodeVisitor)
    }
}

struct YamlNodeVisitor;

impl<'de> Visitor<'de> for YamlNodeVisitor {
    type Value = YamlNode;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a YAML value")
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

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<YamlNode, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<YamlNode, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(YamlNode::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<YamlNode, A::Error> {
        let mut members: Vec<(Spanned<String>, Spanned<YamlNode>)> = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            if members.iter().any(|(earlier, _)| earlier.value == key.value) {
                return Err(de::Error::custom(format!("'{}' appears twice", key.value)));
            }
            members.push((key, map.next_value()?));
        }
        Ok(YamlNode::Map(members))
    }
}
