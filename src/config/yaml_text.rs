//! The configuration text: parses YAML into a JSON value and records the line of every path. Checks YAML syntax only.

use super::{config_problem::ConfigProblem, format_hint, key_path::join_path};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;
use std::{collections::HashMap, fmt};

/// A parsed configuration text, with the line of every path.
#[derive(Debug, Default)]
pub(super) struct ConfigText {
    pub(super) value: Value,
    lines: HashMap<String, u64>,
    /// The lines of the keys of members, where those of their values may come later.
    key_lines: HashMap<String, u64>,
    pub(super) overriding_variables: HashMap<String, String>,
    /// Variables that look like overrides and are none.
    pub(super) ignored_variables: Vec<String>,
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
                    let member_path = join_path(&path, &key.value);
                    self.key_lines.insert(member_path.clone(), key.referenced.line());
                    object.insert(key.value, self.flatten(member, member_path));
                }
                Value::Object(object)
            }
        }
    }

    /// Returns the line at which each setting begins: that of its key, or that of an item of a list.
    pub(super) fn setting_lines(&self) -> HashMap<String, u64> {
        let mut lines = self.lines.clone();
        lines.extend(self.key_lines.iter().map(|(path, line)| (path.clone(), *line)));
        lines
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
