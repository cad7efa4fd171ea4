//! What a watch reads.

use super::api_objects::{ObjectKey, ResourceKind};
use std::sync::Arc;

/// A namespace, or `None` for all of the cluster.
pub(super) type NamespaceName = Option<Arc<str>>;

/// What a watch reads: one kind of object, in one namespace or in all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct WatchScope {
    pub(super) kind: ResourceKind,
    pub(super) namespace: NamespaceName,
}

impl WatchScope {
    /// Whether the watch reads this object.
    pub(super) fn contains(&self, kind: ResourceKind, key: &ObjectKey) -> bool {
        self.kind == kind && self.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)
    }
}
