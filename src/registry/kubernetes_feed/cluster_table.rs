//! Cluster table: the Services, EndpointSlices and ConfigMaps of a source as the watches last saw them, and the Services
//! whose documents the registry does not have yet. Objects stay while the API server is away. Of several namespaces, each
//! may fail without the others.
//! The table is bounded in Services and bytes, and independent of connections.

use super::{
    api_objects::{ClusterObject, ObjectKey, ReceivedObject, ResourceKind, Service},
    config::is_dns_subdomain,
    namespace_state::{NO_ANSWER, NamespaceStates, WatchState},
    service_document::{CONFIG_MAP_ANNOTATION, ServiceObjects},
    watch_scope::WatchScope,
};
use crate::registry::feed::{FeedPart, PartUpdate, PollResult};
use parking_lot::{Mutex, MutexGuard};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::{Mutex as AsyncMutex, Notify},
    time::Instant,
};

/// Maximum size in bytes of all objects together.
pub(super) const MAX_TOTAL_SIZE: usize = 256 << 20;
/// How long changes are collected before they are reported: a rollout changes many endpoints one after the other.
const SETTLE_TIME: Duration = Duration::from_millis(100);

/// The bounds of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableBounds {
    pub(super) max_services: usize,
    pub(super) max_bytes: usize,
    /// How long the objects of one of several namespaces stay that cannot be read; for the source as a whole the
    /// catalogue decides.
    pub(super) max_staleness: Option<Duration>,
}

/// The cluster table, shared by the feed and its watches.
#[derive(Debug)]
pub(super) struct ClusterTable {
    bounds: TableBounds,
    /// Held while a list is read: the table and one list are in memory, however many watches begin at once.
    list_turn: AsyncMutex<()>,
    state: Mutex<ClusterState>,
    notify: Notify,
}

/// The keys of the objects that name another one, by the key of that one.
type KeyIndex = HashMap<ObjectKey, BTreeSet<ObjectKey>>;

#[derive(Debug, Default)]
struct ClusterState {
    objects: HashMap<(ResourceKind, ObjectKey), ClusterObject>,
    /// The slices of each Service, also of Services that are no agents.
    slices: KeyIndex,
    /// The Services that name each ConfigMap, also of ConfigMaps that do not exist.
    map_users: KeyIndex,
    services: usize,
    bytes: usize,
    watches: HashMap<WatchScope, WatchState>,
    /// Why the watches cannot begin.
    start_error: Option<String>,
    /// Services that changed since the last report.
    unreported: HashSet<ObjectKey>,
    /// Services of the last report, until the registry acknowledges it.
    pending: HashSet<ObjectKey>,
    pending_is_complete: bool,
    /// Whether a complete report was acknowledged.
    complete_acknowledged: bool,
    /// Whether each namespace was listed once or could not be. A namespace that is listed again delays no report.
    was_settled: bool,
    /// Namespaces whose Services were dropped, because they could not be read for too long.
    dropped: HashSet<Arc<str>>,
    /// The parts that were reported as unreadable.
    unreadable: BTreeSet<Arc<str>>,
}

/// What is to be reported: a Service with its objects, or `None` for one that is gone.
pub(super) struct ClusterReport {
    /// A result with the parts of namespaces that cannot be read; with an error, if none can.
    pub(super) result: PollResult,
    pub(super) services: Vec<(ObjectKey, Option<ServiceObjects>)>,
}

impl ClusterTable {
    pub(super) fn new(bounds: TableBounds) -> Self {
        Self { bounds, list_turn: AsyncMutex::default(), state: Mutex::default(), notify: Notify::new() }
    }

    /// Waits until no other list is read; the next one may be read when the guard is dropped.
    pub(super) async fn wait_for_list_turn(&self) -> impl Drop {
        self.list_turn.lock().await
    }

    fn lock_state(&self) -> MutexGuard<'_, ClusterState> {
        self.state.lock()
    }

    /// Begins with these watches. Objects of scopes that are watched no longer are removed.
    pub(super) fn begin(&self, scopes: &[WatchScope]) {
        let mut state = self.lock_state();
        state.start_error = None;
        let ended: Vec<WatchScope> = state.watches.keys().filter(|scope| !scopes.contains(scope)).cloned().collect();
        for scope in ended {
            state.watches.remove(&scope);
            state.retain_in_scope(&scope, &HashSet::new());
        }
        for scope in scopes {
            state.watches.entry(scope.clone()).or_default();
        }
    }

    /// Records why the watches cannot begin.
    pub(super) fn record_start_failure(&self, why: String) {
        let mut state = self.lock_state();
        if state.start_error.as_ref() != Some(&why) {
            state.start_error = Some(why);
            self.notify.notify_one();
        }
    }

    /// Records why the objects of a scope may be out of date. They stay. The same reason once more is no update, so that
    /// an outage does not defeat the delay between polls.
    pub(super) fn record_failure(&self, scope: &WatchScope, why: String) {
        let mut state = self.lock_state();
        if state.watches.entry(scope.clone()).or_default().record_failure(why) {
            self.notify.notify_one();
        }
    }

    /// Records that the objects of a scope are watched; returns whether the table has them. If not, they must be listed
    /// first.
    pub(super) fn record_watching(&self, scope: &WatchScope) -> bool {
        let mut state = self.lock_state();
        let Some(watch) = state.watches.get_mut(scope).filter(|watch| watch.is_listed) else { return false };
        if watch.record_watching() {
            self.notify.notify_one();
        }
        true
    }

    /// Replaces the objects of a scope by those of a complete list.
    ///
    /// # Errors
    /// The objects do not fit; those before stay.
    pub(super) fn replace(&self, scope: &WatchScope, objects: Vec<ReceivedObject>) -> Result<(), String> {
        let mut state = self.lock_state();
        let outside = state.objects.iter().filter(|((kind, key), _)| !scope.contains(*kind, key));
        let (mut services, mut bytes) = (0, 0);
        for ((kind, key), object) in outside {
            services += usize::from(*kind == ResourceKind::Services);
            bytes += object.size(key);
        }
        for received in &objects {
            services += usize::from(scope.kind == ResourceKind::Services);
            bytes += received.object.size(&received.key);
        }
        self.check_bounds(services, bytes)?;
        let listed: HashSet<ObjectKey> = objects.iter().map(|received| received.key.clone()).collect();
        state.retain_in_scope(scope, &listed);
        for received in objects {
            state.insert(scope.kind, received.key, received.object);
        }
        let watch = state.watches.entry(scope.clone()).or_default();
        watch.is_listed = true;
        watch.record_watching();
        self.notify.notify_one();
        Ok(())
    }

    /// Stores an object that was added or changed.
    ///
    /// # Errors
    /// The object does not fit; its previous version stays.
    pub(super) fn upsert(&self, kind: ResourceKind, received: ReceivedObject) -> Result<(), String> {
        let ReceivedObject { key, object, .. } = received;
        let mut state = self.lock_state();
        let previous = state.objects.get(&(kind, key.clone()));
        let bytes = state.bytes + object.size(&key) - previous.map_or(0, |previous| previous.size(&key));
        let services = state.services + usize::from(kind == ResourceKind::Services && previous.is_none());
        self.check_bounds(services, bytes)?;
        state.insert(kind, key, object);
        if !state.unreported.is_empty() {
            self.notify.notify_one();
        }
        Ok(())
    }

    /// Removes an object that was deleted.
    pub(super) fn remove(&self, kind: ResourceKind, key: &ObjectKey) {
        let mut state = self.lock_state();
        state.remove(kind, key);
        if !state.unreported.is_empty() {
            self.notify.notify_one();
        }
    }

    /// Checks that the objects of a list that is not complete yet fit: their number, and their size in bytes.
    ///
    /// # Errors
    /// They do not fit.
    pub(super) fn check_listed(&self, kind: ResourceKind, count: usize, bytes: usize) -> Result<(), String> {
        self.check_bounds(if kind == ResourceKind::Services { count } else { 0 }, bytes)
    }

    fn check_bounds(&self, services: usize, bytes: usize) -> Result<(), String> {
        let TableBounds { max_services, max_bytes, .. } = self.bounds;
        if services > max_services {
            return Err(format!("more than {max_services} Services match (see max_agents)"));
        }
        if bytes > max_bytes {
            return Err(format!("the objects take more than {} MiB together", max_bytes >> 20));
        }
        Ok(())
    }

    /// Returns the Services that the registry does not have yet; all of them, until a report of all namespaces was
    /// acknowledged. Before the lists of a namespace are complete, none of it: a Service without its endpoints would count
    /// as unavailable.
    pub(super) fn take_report(&self) -> ClusterReport {
        let mut state = self.lock_state();
        let state = &mut *state;
        let namespaces = state.namespaces(&self.bounds);
        let error = state.start_error.clone().or_else(|| namespaces.error());
        state.was_settled |= namespaces.is_settled();
        if !state.was_settled || (error.is_some() && !namespaces.are_listed()) {
            let why = error.unwrap_or_else(|| NO_ANSWER.to_owned());
            return ClusterReport { result: PollResult::failed(why), services: Vec::new() };
        }
        let replaces_all = error.is_none() && !state.complete_acknowledged;
        // If no namespace can be read, the catalogue decides how long the agents stay.
        let parts = if error.is_none() {
            state.drop_expired(&namespaces);
            state.namespace_parts(&namespaces, replaces_all)
        } else {
            Vec::new()
        };
        let mut keys = std::mem::take(&mut state.pending);
        keys.extend(state.unreported.drain());
        state.pending_is_complete = error.is_none() && namespaces.are_listed();
        if !state.complete_acknowledged {
            keys.extend(state.service_keys());
        }
        let is_known = |key: &ObjectKey| namespaces.is_listed(&key.namespace) || state.dropped.contains(&key.namespace);
        let (reported, awaited): (HashSet<ObjectKey>, HashSet<ObjectKey>) = keys.into_iter().partition(is_known);
        let services = reported.iter().map(|key| (key.clone(), state.reported_objects(key))).collect();
        (state.pending, state.unreported) = (reported, awaited);
        ClusterReport { result: PollResult { parts, error, replaces_all, ..PollResult::default() }, services }
    }

    /// Acknowledges the last report.
    pub(super) fn acknowledge(&self) {
        let mut state = self.lock_state();
        state.pending.clear();
        state.complete_acknowledged |= std::mem::take(&mut state.pending_is_complete);
    }

    /// Discards the last report: everything is reported again.
    pub(super) fn discard_report(&self) {
        let mut state = self.lock_state();
        let pending = std::mem::take(&mut state.pending);
        state.unreported.extend(pending);
        (state.complete_acknowledged, state.pending_is_complete) = (false, false);
    }

    /// Resolves when there is something to report and no further change came for a moment.
    pub(super) async fn wait_for_update(&self) {
        self.notify.notified().await;
        tokio::time::sleep(SETTLE_TIME).await;
    }

    /// Waits until the lists of each namespace are complete or fail, but no longer than `timeout`.
    pub(super) async fn wait_until_listed(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        loop {
            let notified = self.notify.notified();
            {
                let state = self.lock_state();
                if state.start_error.is_some() || state.namespaces(&self.bounds).is_settled() {
                    return;
                }
            }
            if tokio::time::timeout_at(deadline, notified).await.is_err() {
                return;
            }
        }
    }
}

impl ClusterState {
    fn namespaces(&self, bounds: &TableBounds) -> NamespaceStates {
        NamespaceStates::new(&self.watches, bounds.max_staleness)
    }

    /// Returns a part for each namespace that says whether it can be read; the parts of its Services lie below, and stay
    /// while it cannot. Of a namespace that could not be read for too long they are removed.
    fn namespace_parts(&mut self, namespaces: &NamespaceStates, replaces_all: bool) -> Vec<FeedPart> {
        let (mut parts, mut unreadable) = (Vec::new(), BTreeSet::new());
        for (namespace, state) in namespaces.iter() {
            let Some(namespace) = namespace else { continue };
            let (name, update) = match state.why_unreadable() {
                None if replaces_all || self.unreadable.remove(namespace) => {
                    (Arc::clone(namespace), PartUpdate::Replaced(Vec::new()))
                }
                None => continue,
                Some(why) if !state.is_expired => (Arc::clone(namespace), PartUpdate::Unreadable(why.to_owned())),
                Some(why) => {
                    // No parts lie below this name.
                    let name = format!("namespace {namespace}").into();
                    (name, PartUpdate::Unreadable(format!("{why} (for longer than max_staleness)")))
                }
            };
            if matches!(update, PartUpdate::Unreadable(_)) {
                self.unreadable.remove(&name);
                unreadable.insert(Arc::clone(&name));
            }
            parts.push(FeedPart { name, update });
        }
        let former = std::mem::replace(&mut self.unreadable, unreadable);
        parts.extend(former.into_iter().map(|name| FeedPart { name, update: PartUpdate::Removed }));
        parts
    }

    /// Drops the Services of namespaces that could not be read for too long, until these are listed again.
    fn drop_expired(&mut self, namespaces: &NamespaceStates) {
        for (namespace, state) in namespaces.iter() {
            let Some(namespace) = namespace.as_ref().filter(|_| state.is_listed) else { continue };
            let is_change = if state.is_expired {
                self.forget_outdated(namespace);
                self.dropped.insert(Arc::clone(namespace))
            } else {
                self.dropped.remove(namespace)
            };
            if is_change {
                let of_namespace = self.service_keys().filter(|key| key.namespace == *namespace);
                let changed: Vec<ObjectKey> = of_namespace.collect();
                self.unreported.extend(changed);
            }
        }
    }

    /// Removes the objects that may be out of date. They return with their next list.
    fn forget_outdated(&mut self, namespace: &Arc<str>) {
        let watches = self.watches.iter_mut().filter(|(scope, _)| scope.namespace.as_ref() == Some(namespace));
        let outdated = watches.filter_map(|(scope, watch)| watch.forget_if_failing().then(|| scope.clone()));
        for scope in outdated.collect::<Vec<WatchScope>>() {
            self.retain_in_scope(&scope, &HashSet::new());
        }
    }

    /// Returns the objects of a Service; `None` for one that is gone, or was dropped.
    fn reported_objects(&self, key: &ObjectKey) -> Option<ServiceObjects> {
        if self.dropped.contains(&key.namespace) { None } else { self.service_objects(key) }
    }

    fn service_keys(&self) -> impl Iterator<Item = ObjectKey> {
        self.objects.keys().filter(|(kind, _)| *kind == ResourceKind::Services).map(|(_, key)| key.clone())
    }

    fn get(&self, kind: ResourceKind, key: &ObjectKey) -> Option<&ClusterObject> {
        self.objects.get(&(kind, key.clone()))
    }

    fn service_objects(&self, key: &ObjectKey) -> Option<ServiceObjects> {
        let service = match self.get(ResourceKind::Services, key)? {
            ClusterObject::Service(service) => Ok(Arc::clone(service)),
            ClusterObject::Invalid(why) => Err(Arc::clone(why)),
            ClusterObject::Slice(_) | ClusterObject::ConfigMap(_) => return None,
        };
        let named = service.as_ref().ok().and_then(|service| named_config_map(key, service));
        let config_map = named.and_then(|name| match self.get(ResourceKind::ConfigMaps, &name)? {
            ClusterObject::ConfigMap(document) => document.clone(),
            ClusterObject::Service(_) | ClusterObject::Slice(_) | ClusterObject::Invalid(_) => None,
        });
        let names = self.slices.get(key).into_iter().flatten();
        let slices = names.filter_map(|name| match self.get(ResourceKind::EndpointSlices, name)? {
            ClusterObject::Slice(slice) => Some(Arc::clone(slice)),
            ClusterObject::Service(_) | ClusterObject::ConfigMap(_) | ClusterObject::Invalid(_) => None,
        });
        Some(ServiceObjects { key: key.clone(), slices: slices.collect(), service, config_map })
    }

    /// Removes the objects of a scope that are not in `listed`.
    fn retain_in_scope(&mut self, scope: &WatchScope, listed: &HashSet<ObjectKey>) {
        let in_scope = self.objects.keys().filter(|(kind, key)| scope.contains(*kind, key) && !listed.contains(key));
        let missing: Vec<ObjectKey> = in_scope.map(|(_, key)| key.clone()).collect();
        for key in missing {
            self.remove(scope.kind, &key);
        }
    }

    fn insert(&mut self, kind: ResourceKind, key: ObjectKey, object: ClusterObject) {
        if self.get(kind, &key) == Some(&object) {
            return;
        }
        self.remove(kind, &key);
        self.bytes += object.size(&key);
        self.services += usize::from(kind == ResourceKind::Services);
        if let Some((index, indexed)) = self.index_of(&key, &object) {
            index.entry(indexed).or_default().insert(key.clone());
        }
        self.record_change(kind, &key, &object);
        self.objects.insert((kind, key), object);
    }

    fn remove(&mut self, kind: ResourceKind, key: &ObjectKey) {
        let Some(object) = self.objects.remove(&(kind, key.clone())) else { return };
        self.bytes -= object.size(key);
        self.services -= usize::from(kind == ResourceKind::Services);
        if let Some((index, indexed)) = self.index_of(key, &object)
            && let Some(keys) = index.get_mut(&indexed)
        {
            keys.remove(key);
            if keys.is_empty() {
                index.remove(&indexed);
            }
        }
        self.record_change(kind, key, &object);
    }

    /// Returns the index that has an object, and the key under which it is there.
    fn index_of(&mut self, key: &ObjectKey, object: &ClusterObject) -> Option<(&mut KeyIndex, ObjectKey)> {
        match object {
            ClusterObject::Service(service) => Some((&mut self.map_users, named_config_map(key, service)?)),
            ClusterObject::Slice(slice) => Some((&mut self.slices, slice.service.clone())),
            ClusterObject::ConfigMap(_) | ClusterObject::Invalid(_) => None,
        }
    }

    /// Records the Services whose documents depend on an object.
    fn record_change(&mut self, kind: ResourceKind, key: &ObjectKey, object: &ClusterObject) {
        match (kind, object) {
            (ResourceKind::Services, _) => drop(self.unreported.insert(key.clone())),
            (ResourceKind::EndpointSlices, ClusterObject::Slice(slice)) => {
                if self.get(ResourceKind::Services, &slice.service).is_some() {
                    self.unreported.insert(slice.service.clone());
                }
            }
            (ResourceKind::EndpointSlices, _) => {}
            (ResourceKind::ConfigMaps, _) => {
                self.unreported.extend(self.map_users.get(key).into_iter().flatten().cloned());
            }
        }
    }
}

/// Returns the key of the ConfigMap that a Service names.
fn named_config_map(key: &ObjectKey, service: &Service) -> Option<ObjectKey> {
    let name = service.annotations.get(CONFIG_MAP_ANNOTATION).filter(|name| is_dns_subdomain(name))?;
    Some(ObjectKey { namespace: Arc::clone(&key.namespace), name: name.as_str().into() })
}
