//! Walks over schemas for what the gateway itself wants to know of them, such as the types of properties. A walk visits
//! each subschema once and takes fuel, however the references lead.

use json_schema::{
    Draft,
    fuel::Fuel,
    schema_index::{SchemaIndex, SchemaLocation},
};
use serde_json::Value;
use std::collections::HashSet;

/// Units of fuel for a subschema that is visited.
const VISIT_COST: u64 = 10;

/// A walk over one schema document.
pub(super) struct SchemaWalk<'a> {
    index: SchemaIndex<'a>,
    fuel: Fuel,
}

impl<'a> SchemaWalk<'a> {
    /// Begins a walk that takes up to `max_fuel`; `None` if the document cannot be indexed with it.
    pub(super) fn begin(document: &'a Value, max_fuel: u64) -> Option<Self> {
        let mut fuel = Fuel::new(max_fuel);
        let index = SchemaIndex::build(document, Draft::default(), &mut fuel).ok()?;
        Some(Self { index, fuel })
    }

    /// Returns the root of the document.
    pub(super) fn root(&self) -> Option<SchemaLocation<'a>> {
        self.index.root()
    }

    /// Returns the fuel that was taken.
    pub(super) fn fuel_used(&self) -> u64 {
        self.fuel.used()
    }

    /// Charges fuel; returns whether the walk may go on.
    pub(super) fn charge(&mut self, units: u64) -> bool {
        self.fuel.charge(units);
        !self.fuel.is_spent()
    }

    /// Returns the location of a subschema of `outer`.
    pub(super) fn child(&self, outer: SchemaLocation<'a>, schema: &'a Value) -> SchemaLocation<'a> {
        self.index.child(outer.resource, schema)
    }

    /// Returns the targets of a schema's references, as far as they have any.
    pub(super) fn targets(&mut self, from: SchemaLocation<'a>) -> Vec<SchemaLocation<'a>> {
        let references = ["$ref", "$dynamicRef", "$recursiveRef"].into_iter();
        let references = references.filter_map(|keyword| from.schema.get(keyword)?.as_str());
        let mut targets = Vec::new();
        for reference in references {
            self.fuel.charge(VISIT_COST + reference.len() as u64 / 16);
            targets.extend(self.index.resolve(reference, from.resource).ok());
        }
        targets
    }

    /// Returns the schemas that apply to the same value as `start`, each once: itself, the targets of references, and
    /// those of `anyOf`, `oneOf` and `allOf`. The list ends where the fuel does.
    pub(super) fn in_place(&mut self, start: SchemaLocation<'a>) -> Vec<SchemaLocation<'a>> {
        let (mut visited, mut found, mut pending) = (HashSet::new(), Vec::new(), vec![start]);
        while let Some(location) = pending.pop() {
            if !self.charge(VISIT_COST) {
                break;
            }
            if !visited.insert(std::ptr::from_ref(location.schema)) {
                continue;
            }
            found.push(location);
            let mut next = self.targets(location);
            for keyword in ["anyOf", "oneOf", "allOf"] {
                let combined = location.schema.get(keyword).and_then(Value::as_array).into_iter().flatten();
                next.extend(combined.map(|schema| self.index.child(location.resource, schema)));
            }
            self.fuel.charge(next.len() as u64);
            pending.extend(next.into_iter().rev());
        }
        found
    }
}
