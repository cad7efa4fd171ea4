//! The metrics, made once and held as handles: counting on the path of a call looks nothing up.

use prometheus::{IntCounterVec, Opts, Registry};
use std::sync::Arc;

/// All metrics of one gateway; each gateway has its own registry, so several can live in one process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    events: IntCounterVec,
}

macro_rules! events {
    ($($event:ident $name:literal $doc:literal;)*) => {
        /// What happened besides calls; one label value each in `gatepost_events_total`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Event { $(#[doc = $doc] $event,)* }

        impl Event {
            /// Every event.
            pub const ALL: &'static [Self] = &[$(Self::$event),*];

            /// The label value.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$event => $name,)* }
            }
        }
    };
}

events! {
    ConfigLoaded "config_loaded" "A configuration was put in force.";
    ConfigRefused "config_refused" "A changed configuration was refused; the last good one stays.";
    AgentRefused "agent_refused" "An agent's document was refused.";
    CatalogueSwapped "catalogue_swapped" "A new snapshot of agents was put in force.";
    JwksFetched "jwks_fetched" "An issuer's keys were fetched.";
    JwksFailed "jwks_failed" "An issuer's keys could not be fetched.";
    IntrospectionFailed "introspection_failed" "A token could not be introspected.";
    KeysLoaded "keys_loaded" "The API keys were read.";
    KeysRefused "keys_refused" "A changed file of API keys was refused; the last good ones stay.";
    LimitOverflow "limit_overflow" "A limiter held its most keys; a new one shared the overflow bucket.";
}

impl Metrics {
    /// A registry with every metric at zero.
    ///
    /// # Errors
    /// A name that the registry does not take, which is a defect.
    pub fn new() -> Result<Arc<Self>, prometheus::Error> {
        let registry = Registry::new();
        let events = IntCounterVec::new(Opts::new("gatepost_events_total", "Things that happened besides calls."), &["event"])?;
        registry.register(Box::new(events.clone()))?;
        for event in Event::ALL {
            events.with_label_values(&[event.name()]);
        }
        Ok(Arc::new(Self { registry, events }))
    }

    /// Counts one event.
    pub fn count(&self, event: Event) {
        self.events.with_label_values(&[event.name()]).inc();
    }

    /// The registry, for the page that Prometheus scrapes.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}
