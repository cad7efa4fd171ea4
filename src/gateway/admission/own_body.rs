//! A JSON body that is for the gateway itself: the definition of a pipeline, or a request that is translated for an agent.

use super::body_account::BodyAccount;
use crate::{
    contract::{CallChecks, CheckOwner, ContractConfig, CountedValue, JsonBounds},
    fault::Result,
    gateway::gateway_state::Gateway,
};
use bytes::Bytes;
use std::time::Instant;

/// What a body for the gateway itself is parsed with.
#[derive(Clone, Copy)]
pub(in crate::gateway) struct OwnBodyParser<'a> {
    pub(in crate::gateway) gateway: &'a Gateway,
    pub(in crate::gateway) config: &'a ContractConfig,
    pub(in crate::gateway) account: BodyAccount<'a>,
    pub(in crate::gateway) deadline: Instant,
}

impl OwnBodyParser<'_> {
    /// Parses a body.
    ///
    /// # Errors
    /// 400 for what is no JSON; 429 or 503 if there is no memory or time for it.
    pub(in crate::gateway) async fn parse(&self, body: Bytes) -> Result<CountedValue> {
        let Self { gateway, config, account, deadline } = self;
        let owner = CheckOwner {
            agent: gateway.check_scheduler.without_agent(),
            client: account.client,
            config: &config.suspended_checks,
            deadline: *deadline,
        };
        let mut checks = CallChecks::new(&gateway.check_scheduler, owner, account);
        let body = checks.parse(body, JsonBounds { max_depth: config.max_depth }).await?;
        checks.to_value(body).await
    }
}
