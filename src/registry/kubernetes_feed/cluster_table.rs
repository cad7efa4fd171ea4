//! Cluster table: the Services, EndpointSlices and ConfigMaps of a source as the watches last saw them, and the Services
//! whose documents the registry does not have yet. Objects stay while the API server is away.
//! The table is bounded in Services and bytes, and independent of connections.

use super::{
    api_objects::{ClusterObject, ObjectKey, ReceivedObject, ResourceKind, Service},
    config::is_dns_subdomain,
    service_document::{CONFIG_MAP_ANNOTATION, ServiceObjects},
};
use crate::registry::feed::PollResult;
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

/// What a watch reads: one kind of object, in one namespace or in all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct WatchScope {
    pub(super) kind: ResourceKind,
    pub(super) namespace: Option<Arc<str>>,
}

/// The cluster table, shared by the feed and its watches.
#[derive(Debug)]
pub(super) struct ClusterTable {
    max_services: usize,
    max_bytes: usize,
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
}

#[derive(Debug, Default)]
struct WatchState {
    /// Whether the objects of the scope were listed once.
    is_listed: bool,
    /// Why the objects may be out of date.
    error: Option<String>,
}

/// What is to be reported: a Service with its objects, or `None` for one that is gone.
pub(super) struct ClusterReport {
    /// A result without parts; with an error, if objects are missing or may be out of date.
    pub(super) result: PollResult,
    pub(super) services: Vec<(ObjectKey, Option<ServiceObjects>)>,
}

impl ClusterTable {
    pub(super) fn new(max_services: usize, max_bytes: usize) -> Self {
        Self {
            max_services,
            max_bytes,
            list_turn: AsyncMutex::default(),
            state: Mutex::default(),
            notify: Notify::new(),
        }
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
        self.record_error(&mut self.lock_state().start_error, why);
    }

    /// Records why the objects of a scope may be out of date. They stay. The same reason once more is no update, so that
    /// an outage does not defeat the delay between polls.
    pub(super) fn record_failure(&self, scope: &WatchScope, why: String) {
        let mut state = self.lock_state();
        self.record_error(&mut state.watches.entry(scope.clone()).or_default().error, why);
    }

    fn record_error(&self, error: &mut Option<String>, why: String) {
        if error.as_ref() != Some(&why) {
            *error = Some(why);
            self.notify.notify_one();
        }
    }

    /// Records that the objects of a scope are watched.
    pub(super) fn record_watching(&self, scope: &WatchScope) {
        let mut state = self.lock_state();
        let recovered = state.watches.get_mut(scope).is_some_and(|watch| watch.error.take().is_some());
        if recovered {
            self.notify.notify_one();
        }
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
        (watch.is_listed, watch.error) = (true, None);
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
        if services > self.max_services {
            return Err(format!("more than {} Services match (see max_agents)", self.max_services));
        }
        if bytes > self.max_bytes {
            return Err(format!("the objects take more than {} MiB together", self.max_bytes >> 20));
        }
        Ok(())
    }

    /// Returns the Services that the registry does not have yet; all of them, when every list is complete for the first
    /// time. Before that, none: a Service without its endpoints would count as unavailable.
    pub(super) fn take_report(&self) -> ClusterReport {
        let mut state = self.lock_state();
        let state = &mut *state;
        let result = PollResult { error: state.error(), ..PollResult::default() };
        if !state.is_listed() {
            let why = result.error.unwrap_or_else(|| "the API server has not answered yet".to_owned());
            return ClusterReport { result: PollResult::failed(why), services: Vec::new() };
        }
        let mut keys = std::mem::take(&mut state.pending);
        keys.extend(state.unreported.drain());
        state.pending_is_complete = result.error.is_none();
        if !state.complete_acknowledged {
            keys.extend(state.service_keys());
        }
        let services = keys.iter().map(|key| (key.clone(), state.service_objects(key))).collect();
        state.pending = keys;
        ClusterReport { result, services }
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

    /// Waits until every list is complete or fails, but no longer than `timeout`.
    pub(super) async fn wait_until_listed(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        loop {
            let notified = self.notify.notified();
            {
                let state = self.lock_state();
                if state.is_listed() || state.error().is_some() {
                    return;
                }
            }
            if tokio::time::timeout_at(deadline, notified).await.is_err() {
                return;
            }
        }
    }
}

impl WatchScope {
    fn contains(&self, kind: ResourceKind, key: &ObjectKey) -> bool {
        self.kind == kind && self.namespace.as_ref().is_none_or(|namespace| *namespace == key.namespace)
    }
}

impl ClusterState {
    fn is_listed(&self) -> bool {
        !self.watches.is_empty() && self.watches.values().all(|watch| watch.is_listed)
    }

    fn error(&self) -> Option<String> {
        let of_watches = self.watches.values().filter_map(|watch| watch.error.as_ref());
        self.start_error.as_ref().or_else(|| of_watches.min()).cloned()
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
