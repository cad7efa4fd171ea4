//! Index of a schema document: its resources, identifiers, anchors and positions, and the targets of references.
//! Nothing is fetched: a reference leads into the document, to a metaschema of the drafts, or nowhere.

mod positions;

use crate::{
    draft::{Draft, SubschemaPlace},
    fuel::Fuel,
    metaschema,
};
use fluent_uri::{Uri, UriRef};
use positions::Positions;
pub(crate) use positions::{address_of, push_segment};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// Base of the identifiers of a document that has none.
const DEFAULT_BASE: &str = "json-schema:///";
/// Units of fuel for each value that is visited.
const VISIT_COST: u64 = 10;

/// A resource: a schema with an identifier of its own, or the root of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceId(usize);

/// A subschema and the resource that contains it.
#[derive(Clone, Copy, Debug)]
pub struct SchemaLocation<'a> {
    /// The subschema.
    pub schema: &'a Value,
    /// Its resource, the subschema itself if it has an identifier.
    pub resource: ResourceId,
}

/// Why a document has no index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexError {
    /// A value at this JSON Pointer is wrong.
    Invalid(String, String),
    /// The fuel has been used up.
    OutOfFuel,
}

#[derive(Debug)]
struct Resource<'a> {
    root: &'a Value,
    base: Uri<String>,
    draft: Draft,
    vocabularies: Vocabularies,
    anchors: HashMap<&'a str, &'a Value>,
    dynamic_anchors: HashMap<&'a str, &'a Value>,
}

/// Which groups of keywords are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vocabularies {
    /// Assertions, such as `minimum`.
    pub validation: bool,
    /// Whether `format` is an assertion, if the metaschema decides.
    pub format_assertion: bool,
}

impl Vocabularies {
    const ALL: Self = Self { validation: true, format_assertion: false };
}

/// The index of a document, and of the metaschemas if a reference may lead to one.
#[derive(Debug)]
pub struct SchemaIndex<'a> {
    resources: Vec<Resource<'a>>,
    by_uri: HashMap<String, ResourceId>,
    /// The resource that begins at a value with this address.
    by_root: HashMap<usize, ResourceId>,
    positions: Positions<'a>,
    has_dynamic_references: bool,
    /// Addresses of the subschemas whose keywords have been looked at.
    visited: HashSet<usize>,
    first_fault: Option<IndexError>,
}

struct Visit<'a> {
    schema: &'a Value,
    resource: ResourceId,
    position: u32,
}

impl<'a> SchemaIndex<'a> {
    /// Indexes a document whose schemas have this draft unless they name another one.
    ///
    /// # Errors
    /// An identifier that is not a URI, a metaschema that is not known, and fuel that is used up.
    pub fn build(root: &'a Value, draft: Draft, fuel: &mut Fuel) -> Result<Self, IndexError> {
        let mut index = Self {
            resources: Vec::new(),
            by_uri: HashMap::new(),
            by_root: HashMap::new(),
            positions: Positions::default(),
            has_dynamic_references: false,
            visited: HashSet::new(),
            first_fault: None,
        };
        let mut names_metaschema = false;
        index.add_document(root, DEFAULT_BASE, draft, fuel, &mut |reference| {
            names_metaschema |= reference.contains("//json-schema.org/") || reference.contains("//spec.openapis.org/");
        });
        if names_metaschema {
            for (uri, metaschema) in metaschema::all() {
                if !index.by_uri.contains_key(uri.trim_end_matches('#')) {
                    index.add_document(metaschema, uri, draft, &mut Fuel::new(u64::MAX), &mut |_| {});
                }
            }
        }
        index.apply_own_metaschemas();
        match index.first_fault.take() {
            Some(fault) => Err(fault),
            None => Ok(index),
        }
    }

    fn add_document(
        &mut self,
        root: &'a Value,
        base: &str,
        draft: Draft,
        fuel: &mut Fuel,
        on_reference: &mut dyn FnMut(&str),
    ) {
        let position = self.positions.add_root(root);
        let draft = self.draft_of(root, draft, position);
        let Ok(base) = Uri::parse(without_fragment(base).to_owned()) else { return };
        let resource = self.add_resource(root, base, draft);
        let mut stack = vec![Visit { schema: root, resource, position }];
        while let Some(visit) = stack.pop() {
            fuel.charge(VISIT_COST);
            if fuel.is_spent() {
                self.first_fault = Some(IndexError::OutOfFuel);
                return;
            }
            self.visit(visit, &mut stack, on_reference);
        }
    }

    fn add_resource(&mut self, root: &'a Value, base: Uri<String>, draft: Draft) -> ResourceId {
        let id = ResourceId(self.resources.len());
        self.by_uri.entry(base.as_str().to_owned()).or_insert(id);
        self.by_root.insert(address_of(root), id);
        self.resources.push(Resource {
            root,
            base,
            draft,
            vocabularies: Vocabularies::ALL,
            anchors: HashMap::new(),
            dynamic_anchors: HashMap::new(),
        });
        id
    }

    fn visit(&mut self, visit: Visit<'a>, stack: &mut Vec<Visit<'a>>, on_reference: &mut dyn FnMut(&str)) {
        let Value::Object(keywords) = visit.schema else { return };
        if !self.visited.insert(address_of(visit.schema)) {
            return;
        }
        let resource = self.add_identifiers(&visit);
        let draft = self.draft(resource);
        for (keyword, value) in keywords {
            match (keyword.as_str(), value) {
                ("$ref", Value::String(reference)) => on_reference(reference),
                ("$dynamicRef" | "$recursiveRef", Value::String(reference)) => {
                    self.has_dynamic_references = true;
                    on_reference(reference);
                }
                _ => {}
            }
            let place = match keyword.as_str() {
                // Before 2019-09, authors used `$defs` as they now use `definitions`.
                "$defs" => SubschemaPlace::Map,
                keyword => draft.subschemas_of(keyword, value),
            };
            if place == SubschemaPlace::None {
                continue;
            }
            let of_keyword = self.positions.add(visit.position, keyword, value);
            match (place, value) {
                (SubschemaPlace::Map, Value::Object(members)) => {
                    for (name, schema) in members {
                        let position = self.positions.add(of_keyword, name, schema);
                        stack.push(Visit { schema, resource, position });
                    }
                }
                (SubschemaPlace::List, Value::Array(items)) => {
                    for (at, schema) in items.iter().enumerate() {
                        let position = self.positions.add_index(of_keyword, at, schema);
                        stack.push(Visit { schema, resource, position });
                    }
                }
                _ => stack.push(Visit { schema: value, resource, position: of_keyword }),
            }
        }
    }

    /// Adds the identifiers and anchors of one subschema, and returns its resource.
    fn add_identifiers(&mut self, visit: &Visit<'a>) -> ResourceId {
        let (schema, outer) = (visit.schema, visit.resource);
        let is_root = self.by_root.get(&address_of(schema)) == Some(&outer);
        let outer_draft = self.draft(outer);
        let hidden = outer_draft.ref_hides_siblings() && schema.get("$ref").is_some();
        // The draft that the subschema names decides where its identifier is.
        let draft = match schema.get("$schema") {
            Some(_) if !is_root => self.draft_of(schema, outer_draft, visit.position),
            _ => outer_draft,
        };
        let id = draft.id_keyword().filter(|_| !hidden);
        let id = id.and_then(|keyword| Some((keyword, schema.get(keyword)?.as_str()?)));
        let mut resource = outer;
        if let Some((keyword, id)) = id {
            let (uri, fragment) = id.split_once('#').unwrap_or((id, ""));
            if !uri.is_empty() {
                match self.resolve_uri(uri, outer) {
                    Some(base) if is_root => self.set_base(outer, base),
                    Some(base) => resource = self.add_resource(schema, base, draft),
                    None => {
                        let why = format!(
                            "a reference cannot be resolved: the identifier '{}' is not a URI",
                            shorten(id, 100)
                        );
                        self.fail(visit.position, keyword, why);
                    }
                }
            }
            if !fragment.is_empty() && draft.ref_hides_siblings() {
                self.add_anchor(resource, fragment, schema);
            }
        }
        let anchor_of =
            |keyword: &str| schema.get(keyword).and_then(Value::as_str).filter(|_| draft.has_keyword(keyword));
        if let Some(anchor) = anchor_of("$anchor") {
            self.add_anchor(resource, anchor, schema);
        }
        if let Some(anchor) = anchor_of("$dynamicAnchor") {
            self.add_anchor(resource, anchor, schema);
            self.add_dynamic_anchor(resource, anchor, schema);
        }
        if draft.has_keyword("$recursiveAnchor") && schema.get("$recursiveAnchor") == Some(&Value::Bool(true)) {
            self.add_dynamic_anchor(resource, "", schema);
        }
        resource
    }

    fn add_anchor(&mut self, resource: ResourceId, anchor: &'a str, schema: &'a Value) {
        if let Some(resource) = self.resources.get_mut(resource.0) {
            resource.anchors.entry(anchor).or_insert(schema);
        }
    }

    fn add_dynamic_anchor(&mut self, resource: ResourceId, anchor: &'a str, schema: &'a Value) {
        if let Some(resource) = self.resources.get_mut(resource.0) {
            resource.dynamic_anchors.entry(anchor).or_insert(schema);
        }
    }

    fn set_base(&mut self, resource: ResourceId, base: Uri<String>) {
        self.by_uri.entry(base.as_str().to_owned()).or_insert(resource);
        if let Some(resource) = self.resources.get_mut(resource.0) {
            resource.base = base;
        }
    }

    fn fail(&mut self, position: u32, keyword: &str, why: String) {
        let mut pointer = self.positions.pointer(position);
        push_segment(&mut pointer, keyword);
        self.first_fault.get_or_insert(IndexError::Invalid(pointer, why));
    }

    /// Returns the draft that a schema names, or `inherited`.
    fn draft_of(&mut self, schema: &Value, inherited: Draft, position: u32) -> Draft {
        let Some(uri) = schema.get("$schema").and_then(Value::as_str) else { return inherited };
        match Draft::of_metaschema(uri) {
            Some(draft) => draft,
            // It may be that of a metaschema within the document, which is known when all identifiers are.
            None if inherited >= Draft::Draft201909 && Uri::parse(uri).is_ok() => inherited,
            None => {
                self.fail_draft(position, uri);
                inherited
            }
        }
    }

    fn fail_draft(&mut self, position: u32, uri: &str) {
        let why = format!("a reference cannot be resolved: '{}' is not a known metaschema", shorten(uri, 100));
        self.fail(position, "$schema", why);
    }

    /// Applies the vocabularies of metaschemas that are within the document.
    fn apply_own_metaschemas(&mut self) {
        let named = |resource: &Resource<'a>| {
            let uri = resource.root.get("$schema")?.as_str()?;
            Draft::of_metaschema(uri).is_none().then_some(uri)
        };
        let pending: Vec<_> =
            self.resources.iter().enumerate().filter_map(|(id, all)| Some((id, named(all)?))).collect();
        for (id, uri) in pending {
            let position = self.resources.get(id).map_or(0, |resource| self.positions.of(resource.root));
            let Some(metaschema) = self.by_uri.get(without_fragment(uri)).and_then(|id| self.resources.get(id.0))
            else {
                self.fail_draft(position, uri);
                continue;
            };
            let draft = metaschema.draft;
            match vocabularies_of(metaschema.root) {
                Ok(vocabularies) => {
                    if let Some(resource) = self.resources.get_mut(id) {
                        (resource.vocabularies, resource.draft) = (vocabularies, draft);
                    }
                }
                Err(unknown) => {
                    let why = format!("the metaschema requires the unknown vocabulary '{}'", shorten(&unknown, 100));
                    self.fail(position, "$schema", why);
                }
            }
        }
    }

    /// Returns the draft of a resource.
    pub fn draft(&self, resource: ResourceId) -> Draft {
        self.resources.get(resource.0).map_or_else(Draft::default, |resource| resource.draft)
    }

    /// Returns the vocabularies of a resource.
    pub fn vocabularies(&self, resource: ResourceId) -> Vocabularies {
        self.resources.get(resource.0).map_or(Vocabularies::ALL, |resource| resource.vocabularies)
    }

    /// Returns whether the document has a reference whose target depends on the path to it.
    pub fn has_dynamic_references(&self) -> bool {
        self.has_dynamic_references
    }

    /// Returns the root of the document.
    pub fn root(&self) -> Option<SchemaLocation<'a>> {
        let resource = ResourceId(0);
        Some(SchemaLocation { schema: self.resources.first()?.root, resource })
    }

    /// Returns the position of a subschema, to be shown by [`SchemaIndex::pointer`].
    pub fn position(&self, schema: &Value) -> u32 {
        self.positions.of(schema)
    }

    /// Returns the JSON Pointer of a position in its document.
    pub fn pointer(&self, position: u32) -> String {
        self.positions.pointer(position)
    }

    /// Returns the location of a subschema of `outer`.
    pub fn child(&self, outer: ResourceId, schema: &'a Value) -> SchemaLocation<'a> {
        let resource = self.by_root.get(&address_of(schema)).copied().unwrap_or(outer);
        SchemaLocation { schema, resource }
    }

    /// Returns the target of `$ref` in a resource.
    ///
    /// # Errors
    /// The reference leaves the document, or has no target.
    pub fn resolve(&mut self, reference: &str, resource: ResourceId) -> Result<SchemaLocation<'a>, String> {
        let quoted = || shorten(reference, 100);
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let target = match uri {
            "" => Some(resource),
            uri => self.resolve_uri(uri, resource).and_then(|uri| self.by_uri.get(uri.as_str()).copied()),
        };
        let Some(target) = target else {
            return Err(format!(
                "the reference '{}' leaves the schema (only references within the schema are allowed)",
                quoted()
            ));
        };
        let location = self.resolve_fragment(fragment, target);
        location.ok_or_else(|| format!("the reference '{}' has no target", quoted()))
    }

    fn resolve_uri(&self, uri: &str, resource: ResourceId) -> Option<Uri<String>> {
        let base = &self.resources.get(resource.0)?.base;
        // A URN has no path that a relative reference could replace.
        let resolved = UriRef::parse(uri).ok()?.resolve_against(base).ok()?.normalize();
        Uri::parse(without_fragment(resolved.as_str()).to_owned()).ok()
    }

    fn resolve_fragment(&mut self, fragment: &str, resource: ResourceId) -> Option<SchemaLocation<'a>> {
        let root = self.resources.get(resource.0)?.root;
        let fragment = percent_encoding::percent_decode_str(fragment).decode_utf8().ok()?;
        if fragment.is_empty() {
            return Some(SchemaLocation { schema: root, resource });
        }
        let Some(path) = fragment.strip_prefix('/') else {
            let schema = *self.resources.get(resource.0)?.anchors.get(&*fragment)?;
            return Some(self.child(resource, schema));
        };
        let (mut location, mut position) = (SchemaLocation { schema: root, resource }, self.positions.of(root));
        for segment in path.split('/') {
            let segment = segment.replace("~1", "/").replace("~0", "~");
            let (name, schema) = member(location.schema, &segment)?;
            position = match name {
                Segment::Name(name) => self.positions.add(position, name, schema),
                Segment::Index(index) => self.positions.add_index(position, index, schema),
            };
            location = self.child(location.resource, schema);
        }
        if !matches!(location.schema, Value::Object(_) | Value::Bool(_)) {
            return None;
        }
        self.visit_below(Visit { schema: location.schema, resource: location.resource, position });
        Some(self.child(location.resource, location.schema))
    }

    /// Looks at a subschema that is within an unknown keyword, and is one because a reference leads there. Each subschema
    /// is looked at once.
    fn visit_below(&mut self, visit: Visit<'a>) {
        let mut stack = vec![visit];
        while let Some(visit) = stack.pop() {
            self.visit(visit, &mut stack, &mut |_| {});
        }
    }

    /// Returns the subschema with a dynamic anchor in a resource; the anchor "" is `$recursiveAnchor`.
    pub fn dynamic_anchor(&self, resource: ResourceId, anchor: &str) -> Option<SchemaLocation<'a>> {
        let schema = *self.resources.get(resource.0)?.dynamic_anchors.get(anchor)?;
        Some(SchemaLocation { schema, resource })
    }

    /// Returns the names of the dynamic anchors of a resource.
    pub fn dynamic_anchors(&self, resource: ResourceId) -> impl Iterator<Item = &'a str> + '_ {
        self.resources.get(resource.0).into_iter().flat_map(|resource| resource.dynamic_anchors.keys().copied())
    }

    /// Returns the positions, which outlive the index.
    pub(crate) fn into_positions(self) -> Box<[(u32, Box<str>)]> {
        self.positions.into_owned()
    }
}

/// Returns the vocabularies that a metaschema declares.
///
/// # Errors
/// The vocabulary that is required and not known.
fn vocabularies_of(metaschema: &Value) -> Result<Vocabularies, String> {
    let Some(Value::Object(declared)) = metaschema.get("$vocabulary") else { return Ok(Vocabularies::ALL) };
    let mut vocabularies = Vocabularies { validation: false, format_assertion: false };
    for (uri, required) in declared {
        let name = ["https://json-schema.org/draft/2020-12/vocab/", "https://json-schema.org/draft/2019-09/vocab/"];
        match name.iter().find_map(|prefix| uri.strip_prefix(prefix)) {
            Some("validation") => vocabularies.validation = true,
            Some("format-assertion") => vocabularies.format_assertion = true,
            Some("format") => vocabularies.format_assertion = *required == Value::Bool(true),
            Some("core" | "applicator" | "unevaluated" | "meta-data" | "format-annotation" | "content") => {}
            _ if *required == Value::Bool(true) => return Err(uri.clone()),
            _ => {}
        }
    }
    Ok(vocabularies)
}

enum Segment<'a> {
    Name(&'a str),
    Index(usize),
}

fn member<'a>(value: &'a Value, segment: &str) -> Option<(Segment<'a>, &'a Value)> {
    match value {
        Value::Object(members) => members.get_key_value(segment).map(|(name, value)| (Segment::Name(name), value)),
        Value::Array(items) => {
            let index = segment.parse().ok()?;
            items.get(index).map(|value| (Segment::Index(index), value))
        }
        _ => None,
    }
}

fn without_fragment(uri: &str) -> &str {
    uri.split_once('#').map_or(uri, |(uri, _)| uri)
}

/// Returns at most `max_chars` characters of `text`, for messages.
pub(crate) fn shorten(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text.to_owned(),
    }
}
