//! The lines of a text in YAML or JSON other than the configuration, such as a file of agents' documents.

use super::{key_path::join_path, yaml_text::YamlNode};
use serde_json::{Map, Value};
use serde_saphyr::Spanned;
use std::collections::HashMap;

/// Maximum size of a text that is indexed, in bytes. Positions take far more memory than the text.
const MAX_TEXT_SIZE: usize = 4 << 20;

/// The values of a text, each with its line.
#[derive(Debug)]
pub struct LineIndex {
    documents: Vec<IndexedDocument>,
}

#[derive(Debug, Default)]
struct IndexedDocument {
    value: Value,
    lines: HashMap<String, u64>,
}

impl LineIndex {
    /// Parses a text; `None` where it is neither YAML nor JSON, or too large.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_TEXT_SIZE {
            return None;
        }
        let options = serde_saphyr::options! { with_snippet: false, strict_booleans: true };
        let nodes: Vec<Spanned<YamlNode>> =
            serde_saphyr::from_slice_multiple_with_options(text.as_bytes(), options).ok()?;
        let index = |node: Spanned<YamlNode>| {
            let mut lines = HashMap::new();
            let value = record_lines(node, String::new(), &mut lines);
            IndexedDocument { value, lines }
        };
        Some(Self { documents: nodes.into_iter().map(index).collect() })
    }

    /// Returns the line of the member at `path` of the document at `index`, from 0, or of the nearest member above it.
    pub fn line_in_document(&self, index: usize, path: &str) -> Option<u64> {
        let bases = self.documents.iter().flat_map(|document| {
            let count = |value: &Value| value.as_array().map(Vec::len);
            let agents = document.value.get("agents").and_then(count);
            let bases: Vec<String> = match (count(&document.value), agents) {
                (Some(count), _) => (0..count).map(|at| format!("[{at}]")).collect(),
                (None, Some(count)) => (0..count).map(|at| format!("agents[{at}]")).collect(),
                (None, None) => vec![String::new()],
            };
            bases.into_iter().map(move |base| (document, base))
        });
        let (document, base) = bases.into_iter().nth(index)?;
        document.line_of(&join_base(&base, path))
    }

    /// Returns the line of the member at `path` of the agent's document whose `id` is `id`, or of the nearest member
    /// above it. Documents stand alone, in lists, or in the member `agents`.
    pub fn line_in_agent(&self, id: &str, path: &str) -> Option<u64> {
        self.documents.iter().find_map(|document| {
            let base = document.path_of_agent(id)?;
            document.line_of(&join_base(&base, path))
        })
    }
}

fn join_base(base: &str, path: &str) -> String {
    if path.is_empty() { base.to_owned() } else { join_path(base, path) }
}

impl IndexedDocument {
    fn path_of_agent(&self, id: &str) -> Option<String> {
        let has_id = |value: &Value| value.get("id").and_then(Value::as_str) == Some(id);
        if has_id(&self.value) {
            return Some(String::new());
        }
        let position = |items: &Value| items.as_array()?.iter().position(has_id);
        let in_list = position(&self.value).map(|at| format!("[{at}]"));
        in_list.or_else(|| self.value.get("agents").and_then(position).map(|at| format!("agents[{at}]")))
    }

    fn line_of(&self, path: &str) -> Option<u64> {
        let mut ancestor = path;
        loop {
            if let Some(line) = self.lines.get(ancestor) {
                return Some(*line);
            }
            match ancestor.rfind(['.', '[']) {
                Some(cut) => ancestor = ancestor.get(..cut)?,
                None if ancestor.is_empty() => return None,
                None => ancestor = "",
            }
        }
    }
}

/// Records the line of each member, which is that of its key, and of each item of a list.
fn record_lines(node: Spanned<YamlNode>, path: String, lines: &mut HashMap<String, u64>) -> Value {
    lines.entry(path.clone()).or_insert_with(|| node.referenced.line());
    match node.value {
        YamlNode::Scalar(value) => value,
        YamlNode::List(items) => {
            let items = items.into_iter().enumerate();
            Value::Array(items.map(|(at, item)| record_lines(item, format!("{path}[{at}]"), lines)).collect())
        }
        YamlNode::Map(members) => {
            let mut object = Map::new();
            for (key, member) in members {
                let member_path = join_path(&path, &key.value);
                lines.insert(member_path.clone(), key.referenced.line());
                object.insert(key.value, record_lines(member, member_path, lines));
            }
            Value::Object(object)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_of_an_agent_has_its_line_wherever_the_document_stands() {
        let alone = "id: one\nendpoint: https://one.example.com\n";
        assert_eq!(LineIndex::parse(alone).unwrap().line_in_agent("one", "endpoint"), Some(2));
        assert_eq!(LineIndex::parse(alone).unwrap().line_in_agent("one", "operations[0].inputs"), Some(1));
        let list = "[\n {\"id\": \"zero\"},\n {\"id\": \"one\",\n  \"operations\": [\n   {\"name\": \"a\",\n    \"examples\": []}]}]";
        let index = LineIndex::parse(list).unwrap();
        assert_eq!(index.line_in_agent("one", "operations[0].examples"), Some(6));
        assert_eq!(index.line_in_agent("one", "operations[0].examples[3].input"), Some(6), "the nearest member above");
        assert_eq!(index.line_in_agent("one", "endpoint"), Some(3), "the document");
        assert_eq!(index.line_in_agent("two", "endpoint"), None);
        assert_eq!((index.line_in_document(1, "endpoint"), index.line_in_document(2, "")), (Some(3), None));
        let several = "agents:\n  - id: one\n---\nid: two\nendpoint: x\n";
        let index = LineIndex::parse(several).unwrap();
        assert_eq!((index.line_in_agent("one", "id"), index.line_in_agent("two", "endpoint")), (Some(2), Some(5)));
    }

    #[test]
    fn a_text_that_cannot_be_parsed_has_no_lines() {
        assert!(LineIndex::parse("{\"id\": ").is_none());
        assert!(LineIndex::parse(&" ".repeat(MAX_TEXT_SIZE + 1)).is_none());
    }
}
