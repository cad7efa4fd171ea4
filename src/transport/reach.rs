//! Whether an agent is there, as far as that can be told without calling it: somebody takes a connection.
//! It decides about no call; what calls have shown of an endpoint is its breaker's.

use super::{Lead, Route, Transport};

impl Transport {
    /// Whether one of the agent's endpoints takes connections now. Kinds that cannot tell are taken to.
    pub async fn reaches(&self, route: &Route) -> bool {
        for lead in route.leads() {
            if self.reaches_along(lead).await {
                return true;
            }
        }
        false
    }

    pub(super) async fn reaches_along(&self, lead: &Lead) -> bool {
        match lead {
            Lead::Http(target) => self.http.reaches(target).await,
            Lead::Other(way) => way.reaches().await,
        }
    }
}
