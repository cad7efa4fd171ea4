//! Dynamic scopes: for each name of a dynamic anchor, the outermost resource on the path that defines it.

use crate::schema_index::{ResourceId, SchemaIndex};
use std::collections::HashMap;

/// A dynamic scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ScopeId(u32);

impl ScopeId {
    /// The scope before any resource.
    pub(super) const EMPTY: Self = Self(0);
}

/// Names and the resources that they are bound to, sorted.
type Bindings<'a> = Vec<(&'a str, ResourceId)>;

/// All scopes of a schema. A schema without dynamic references has one.
#[derive(Debug)]
pub(super) struct Scopes<'a> {
    is_used: bool,
    bindings: Vec<Bindings<'a>>,
    ids: HashMap<Bindings<'a>, ScopeId>,
    entered: HashMap<(ScopeId, ResourceId), ScopeId>,
}

impl<'a> Scopes<'a> {
    pub(super) fn new(is_used: bool) -> Self {
        let ids = HashMap::from([(Vec::new(), ScopeId::EMPTY)]);
        Self { is_used, bindings: vec![Vec::new()], ids, entered: HashMap::new() }
    }

    /// Returns the scope after a resource has been entered. The number of scopes is bounded by the number of blocks,
    /// each of which takes memory of the program.
    pub(super) fn enter(&mut self, scope: ScopeId, resource: ResourceId, index: &SchemaIndex<'a>) -> ScopeId {
        if !self.is_used {
            return ScopeId::EMPTY;
        }
        if let Some(known) = self.entered.get(&(scope, resource)) {
            return *known;
        }
        let mut bindings = self.bindings.get(scope.0 as usize).cloned().unwrap_or_default();
        for anchor in index.dynamic_anchors(resource) {
            if let Err(at) = bindings.binary_search_by_key(&anchor, |(name, _)| name) {
                bindings.insert(at, (anchor, resource));
            }
        }
        let next = ScopeId(u32::try_from(self.bindings.len()).unwrap_or(u32::MAX));
        let id = *self.ids.entry(bindings.clone()).or_insert(next);
        if id == next {
            self.bindings.push(bindings);
        }
        self.entered.insert((scope, resource), id);
        id
    }

    /// Returns the resource that a name is bound to.
    pub(super) fn binding(&self, scope: ScopeId, anchor: &str) -> Option<ResourceId> {
        let bindings = self.bindings.get(scope.0 as usize)?;
        let at = bindings.binary_search_by_key(&anchor, |(name, _)| name).ok()?;
        bindings.get(at).map(|(_, resource)| *resource)
    }
}
