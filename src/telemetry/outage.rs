//! Services that the gateway cannot use at the moment, and what callers get meanwhile: what alerts say, for those who
//! look at the gateway itself.

use super::metric_labels::StoreKind;
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
    time::{SystemTime, UNIX_EPOCH},
};

/// A service that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnavailableService {
    /// A store.
    Store(StoreKind),
    /// An issuer whose keys cannot be fetched, by its label.
    Issuer(Box<str>),
}

/// A service that cannot be used, since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    /// The service.
    pub service: UnavailableService,
    /// The Unix time of the first failure after the last success.
    pub since: i64,
}

impl Outage {
    /// Returns a word for programs, which names no service.
    pub fn code(&self) -> &'static str {
        match self.service {
            UnavailableService::Store(StoreKind::Registry) => "registry_unavailable",
            UnavailableService::Store(StoreKind::Tasks) => "tasks_unavailable",
            UnavailableService::Store(_) => "shared_state_unavailable",
            UnavailableService::Issuer(_) => "issuer_unavailable",
        }
    }

    /// Describes the service and what callers get without it, for operators.
    pub fn describe(&self) -> String {
        match &self.service {
            UnavailableService::Issuer(label) => format!(
                "The keys of the issuer {label} cannot be fetched: tokens with a key that is not known get 503, and all \
                 of its tokens when the known keys are too old."
            ),
            UnavailableService::Store(store) => {
                let effect = match store {
                    StoreKind::Registry => "nothing can be published, and known agents are served on",
                    StoreKind::Tasks => "no task begins, and none can be polled",
                    StoreKind::Limits => "rates and quotas are decided as limits.on_error says",
                    StoreKind::Leases => "the shared concurrency of agents is decided as limits.on_error says",
                    StoreKind::Idempotency => "calls with an Idempotency-Key get 503",
                    StoreKind::SharedState => {
                        "this gateway neither learns nor tells of withdrawn tokens, disabled keys and paired pages"
                    }
                };
                format!("The store '{}' cannot be used: {effect}.", store.name())
            }
        }
    }
}

/// Since when services cannot be used.
#[derive(Debug, Default)]
pub(super) struct OutageTimes {
    /// By [`StoreKind`]; 0 for a store that can be used, because each operation records its result here.
    stores: [AtomicI64; StoreKind::ALL.len()],
    issuers: Mutex<BTreeMap<Box<str>, i64>>,
}

impl OutageTimes {
    /// Records whether a store can be used.
    pub(super) fn record_store(&self, store: StoreKind, is_up: bool) {
        let Some(since) = self.stores.get(store as usize) else { return };
        let known = since.load(Relaxed);
        if is_up && known != 0 {
            since.store(0, Relaxed);
        } else if !is_up && known == 0 {
            since.store(unix_now(), Relaxed);
        }
    }

    /// Records whether the keys of an issuer could be fetched.
    pub(super) fn record_issuer(&self, label: &str, is_up: bool) {
        let mut issuers = self.issuers.lock();
        if is_up {
            issuers.remove(label);
        } else if !issuers.contains_key(label) {
            issuers.insert(label.into(), unix_now());
        }
    }

    /// Forgets the issuers that the configuration no longer has.
    pub(super) fn retain_issuers(&self, is_configured: impl Fn(&str) -> bool) {
        self.issuers.lock().retain(|label, _| is_configured(label));
    }

    /// Returns the stores that cannot be used.
    pub(super) fn stores(&self) -> Vec<Outage> {
        let since = |store: StoreKind| self.stores.get(store as usize).map(|since| since.load(Relaxed));
        let outage = |store| since(store).filter(|since| *since != 0).map(|since| (store, since));
        let outages = StoreKind::ALL.iter().copied().filter_map(outage);
        outages.map(|(store, since)| Outage { service: UnavailableService::Store(store), since }).collect()
    }

    /// Returns the issuers whose keys cannot be fetched.
    pub(super) fn issuers(&self) -> Vec<Outage> {
        let issuers = self.issuers.lock();
        let outages = issuers
            .iter()
            .map(|(label, since)| Outage { service: UnavailableService::Issuer(label.clone()), since: *since });
        outages.collect()
    }
}

fn unix_now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_lasts_from_the_first_failure_to_the_next_success() {
        let times = OutageTimes::default();
        assert_eq!((times.stores(), times.issuers()), (Vec::new(), Vec::new()));
        times.record_store(StoreKind::SharedState, true);
        times.record_store(StoreKind::Tasks, false);
        times.record_issuer("company", false);
        let since = times.stores()[0].since;
        assert!((unix_now() - 5..=unix_now()).contains(&since));
        times.record_store(StoreKind::Tasks, false);
        assert_eq!(times.stores(), [Outage { service: UnavailableService::Store(StoreKind::Tasks), since }]);
        assert_eq!(times.stores()[0].code(), "tasks_unavailable");
        assert_eq!(times.issuers()[0].code(), "issuer_unavailable");
        assert!(times.issuers()[0].describe().contains("issuer company"));
        times.record_store(StoreKind::Tasks, true);
        times.record_issuer("company", true);
        assert_eq!((times.stores(), times.issuers()), (Vec::new(), Vec::new()));
        times.record_issuer("company", false);
        times.retain_issuers(|label| label != "company");
        assert_eq!(times.issuers(), []);
    }
}
