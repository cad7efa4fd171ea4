//! Targets of references within a schema document: identifiers and anchors, and the metaschemas of the drafts. A
//! reference to anything else is refused, so nothing is fetched on behalf of a document.

use crate::values::{json::truncate, percent_decode};
use referencing::{Uri, meta, uri};
use serde_json::Value;
use std::collections::HashMap;

/// Base of the identifiers of a document that has none.
const DEFAULT_BASE: &str = "json-schema:///";

/// A subschema, and the root of the resource that contains it.
#[derive(Clone, Copy)]
pub(super) struct SchemaNode<'a> {
    pub(super) schema: &'a Value,
    pub(super) resource: &'a Value,
}

/// Targets by identifier and by anchor. An anchor belongs to its resource. Several subschemas may have one identifier:
/// a reference to it counts as a reference to each of them.
#[derive(Default)]
pub(super) struct SchemaReferences<'a> {
    base_uris: HashMap<usize, Uri<String>>,
    resources: HashMap<String, Vec<&'a Value>>,
    anchors: HashMap<(usize, &'a str), Vec<&'a Value>>,
    dynamic_anchors: HashMap<&'a str, Vec<SchemaNode<'a>>>,
}

impl<'a> SchemaReferences<'a> {
    /// Collects the identifiers of `root`, whose depth is bounded.
    pub(super) fn collect(root: &'a Value) -> Self {
        let mut references = Self::default();
        if let Ok(base) = uri::from_str(DEFAULT_BASE) {
            references.base_uris.insert(node_address(root), base);
        }
        references.add(root, root);
        references
    }

    /// Adds the metaschemas, to which a reference may lead that nothing in the document answers.
    fn with_metaschemas(mut self) -> Self {
        for metaschema in metaschemas() {
            self.add(metaschema, metaschema);
        }
        self
    }

    /// Collects the identifiers of `root`, and those of the metaschemas if the text of a reference names one.
    pub(super) fn of_document(root: &'a Value) -> Self {
        let references = Self::collect(root);
        if names_metaschema(root) { references.with_metaschemas() } else { references }
    }

    fn add(&mut self, value: &'a Value, resource: &'a Value) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.add(item, resource)),
            Value::Object(members) => {
                let resource = self.add_identifiers(value, resource);
                for (keyword, member) in members {
                    // What looks like an identifier in a constant is none.
                    if !matches!(keyword.as_str(), "const" | "enum") {
                        self.add(member, resource);
                    }
                }
            }
            _ => {}
        }
    }

    /// Collects the identifiers of one subschema, and returns its resource.
    fn add_identifiers(&mut self, value: &'a Value, outer: &'a Value) -> &'a Value {
        let resource = resource_root(value, outer);
        for id in ["$id", "id"].iter().filter_map(|keyword| value.get(keyword)?.as_str()) {
            match id.strip_prefix('#') {
                Some(anchor) => self.anchors.entry((node_address(resource), anchor)).or_default().push(value),
                None => {
                    let absolute = match self.base_uris.get(&node_address(outer)) {
                        Some(base) => uri::resolve_against(&base.borrow(), id),
                        None => uri::from_str(id),
                    };
                    let Ok(absolute) = absolute else { continue };
                    self.resources.entry(without_fragment(absolute.as_str()).to_owned()).or_default().push(value);
                    if let Some((_, anchor)) = id.split_once('#').filter(|(_, anchor)| !anchor.is_empty()) {
                        self.anchors.entry((node_address(value), anchor)).or_default().push(value);
                    }
                    self.base_uris.insert(node_address(value), absolute);
                }
            }
        }
        for keyword in ["$anchor", "$dynamicAnchor"] {
            if let Some(anchor) = value.get(keyword).and_then(Value::as_str) {
                self.anchors.entry((node_address(resource), anchor)).or_default().push(value);
                self.dynamic_anchors.entry(anchor).or_default().push(SchemaNode { schema: value, resource });
            }
        }
        resource
    }

    /// Returns the subschemas with the anchor of a dynamic reference, to any of which it may resolve.
    pub(super) fn dynamic_targets(&self, reference: &str) -> Vec<SchemaNode<'a>> {
        let anchor = reference.rsplit_once('#').map_or("", |(_, fragment)| fragment);
        self.dynamic_anchors.get(anchor).cloned().unwrap_or_default()
    }

    /// Returns the targets of `reference` in `resource`.
    ///
    /// # Errors
    /// The reference leaves the document, or has no target.
    pub(super) fn resolve(&self, reference: &str, resource: &'a Value) -> Result<Vec<SchemaNode<'a>>, String> {
        let quoted = || truncate(reference, 100);
        let (id, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let resources = match id {
            "" => vec![resource],
            id => self.find_resources(id, resource).ok_or_else(|| {
                format!(
                    "the reference '{}' leaves the schema (only references within the schema are allowed)",
                    quoted()
                )
            })?,
        };
        let targets = resources.into_iter().flat_map(|resource| self.find_fragment(fragment, resource));
        let targets: Vec<_> = targets.collect();
        if targets.is_empty() { Err(format!("the reference '{}' has no target", quoted())) } else { Ok(targets) }
    }

    fn find_resources(&self, id: &str, resource: &'a Value) -> Option<Vec<&'a Value>> {
        let absolute = match self.base_uris.get(&node_address(resource)) {
            Some(base) => uri::resolve_against(&base.borrow(), id).ok()?,
            None => uri::from_str(id).ok()?,
        };
        self.resources.get(without_fragment(absolute.as_str())).cloned()
    }

    fn find_fragment(&self, fragment: &str, resource: &'a Value) -> Vec<SchemaNode<'a>> {
        let Some(fragment) = percent_decode(fragment) else { return Vec::new() };
        match fragment.strip_prefix('/') {
            None if fragment.is_empty() => vec![SchemaNode { schema: resource, resource }],
            None => {
                let anchored = self.anchors.get(&(node_address(resource), fragment.as_str()));
                anchored
                    .into_iter()
                    .flatten()
                    .map(|schema| SchemaNode { schema, resource: resource_root(schema, resource) })
                    .collect()
            }
            Some(path) => {
                let start = SchemaNode { schema: resource, resource };
                let target = path.split('/').try_fold(start, |node, segment| {
                    let schema = node.schema.pointer(&format!("/{segment}"))?;
                    Some(SchemaNode { schema, resource: resource_root(schema, node.resource) })
                });
                target.into_iter().collect()
            }
        }
    }
}

/// Returns the address of a value, as its identity.
pub(super) fn node_address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

/// Returns the root of the resource: `value` if it starts one, otherwise `outer`.
pub(super) fn resource_root<'a>(value: &'a Value, outer: &'a Value) -> &'a Value {
    let is_root = ["$id", "id"]
        .iter()
        .any(|keyword| value.get(keyword).and_then(Value::as_str).is_some_and(|id| !id.starts_with('#')));
    if is_root { value } else { outer }
}

fn without_fragment(uri: &str) -> &str {
    uri.split_once('#').map_or(uri, |(uri, _)| uri)
}

/// Returns whether a reference in `value` may lead to a metaschema.
fn names_metaschema(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(names_metaschema),
        Value::Object(members) => members.iter().any(|(keyword, member)| match (keyword.as_str(), member) {
            ("$ref" | "$dynamicRef", Value::String(reference)) => reference.contains("//json-schema.org/"),
            _ => names_metaschema(member),
        }),
        _ => false,
    }
}

fn metaschemas() -> [&'static Value; 19] {
    [
        &meta::DRAFT4,
        &meta::DRAFT6,
        &meta::DRAFT7,
        &meta::DRAFT201909,
        &meta::DRAFT201909_APPLICATOR,
        &meta::DRAFT201909_CONTENT,
        &meta::DRAFT201909_CORE,
        &meta::DRAFT201909_FORMAT,
        &meta::DRAFT201909_META_DATA,
        &meta::DRAFT201909_VALIDATION,
        &meta::DRAFT202012,
        &meta::DRAFT202012_CORE,
        &meta::DRAFT202012_APPLICATOR,
        &meta::DRAFT202012_UNEVALUATED,
        &meta::DRAFT202012_VALIDATION,
        &meta::DRAFT202012_META_DATA,
        &meta::DRAFT202012_FORMAT_ANNOTATION,
        &meta::DRAFT202012_FORMAT_ASSERTION,
        &meta::DRAFT202012_CONTENT,
    ]
}
