//! The most bytes that a body may have, with the setting that a refusal names.

use crate::{
    contract::ContractConfig,
    fault::{Fault, FaultCode},
    gateway::route::Route,
    values::ByteSize,
};

/// The bound of a body.
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway) struct BodyBound {
    pub(in crate::gateway) max_size: ByteSize,
    /// `None` for a bound that no setting changes.
    setting: Option<&'static str>,
}

/// The settings.
const CONTRACT: &str = "contract.max_body_size";
const STREAMED: &str = "agents.max_streamed_body_size";
const A2A: &str = "agents.a2a.max_body_size";

/// The maximum of a validated body of A2A by default, and whatever is set.
const DEFAULT_CHECKED_A2A: ByteSize = ByteSize::from_kib(16 << 10);
const MAX_CHECKED_A2A: ByteSize = ByteSize::from_kib(64 << 10);

impl BodyBound {
    /// Returns a bound that no setting changes, of a body for the gateway itself.
    pub(in crate::gateway) const fn fixed(max_bytes: u64) -> Self {
        Self { max_size: ByteSize::from_bytes(max_bytes), setting: None }
    }

    /// Returns the bound of a body that the contract's own setting bounds.
    pub(in crate::gateway) fn of_contract(config: &ContractConfig) -> Self {
        Self { max_size: config.max_body_size, setting: Some(CONTRACT) }
    }

    /// Returns the bound of a body for an agent that is read whole, because it is validated or kept for a background call.
    pub(in crate::gateway) fn of_checked(route: &Route, config: &ContractConfig) -> Self {
        if !route.has_agent_card {
            return Self::of_contract(config);
        }
        let max_size = match route.a2a_max_body_size {
            Some(size) => size.min(MAX_CHECKED_A2A),
            None => DEFAULT_CHECKED_A2A.max(config.max_body_size),
        };
        Self { max_size, setting: Some(A2A) }
    }

    /// Returns the bound of a body for an agent that passes unchecked; `general` is that of all agents.
    pub(in crate::gateway) fn of_streamed(route: &Route, general: ByteSize) -> Self {
        match route.a2a_max_body_size.filter(|_| route.has_agent_card) {
            Some(max_size) => Self { max_size, setting: Some(A2A) },
            None => Self { max_size: general, setting: Some(STREAMED) },
        }
    }

    /// Returns the bound of a body for an agent's own API.
    pub(in crate::gateway) fn of_api(own: Option<ByteSize>, general: ByteSize) -> Self {
        match own {
            Some(max_size) => Self { max_size, setting: Some("agents.rules[].api.max_body_size") },
            None => Self { max_size: general, setting: Some(STREAMED) },
        }
    }

    /// Returns the bound of a body for an agent's own API that is validated; `self` is that of every body.
    pub(in crate::gateway) fn of_checked_api(self, max_checked: ByteSize) -> Self {
        if max_checked >= self.max_size {
            return self;
        }
        Self { max_size: max_checked, setting: Some("agents.rules[].api.max_checked_body") }
    }

    pub(in crate::gateway) fn max_bytes(self) -> usize {
        self.max_size.get()
    }

    /// Returns the fault of a larger body, which names the setting.
    pub(in crate::gateway) fn exceeded(self) -> Fault {
        let Self { max_size, setting } = self;
        let max_bytes = max_size.get();
        let Some(setting) = setting else {
            let text = format!("The body is too large (at most {max_bytes} bytes)");
            return Fault::new(FaultCode::PayloadTooLarge, text);
        };
        let text = format!("The body is too large (at most {max_bytes} bytes: {setting})");
        Fault::new(FaultCode::PayloadTooLarge, text).with_setting(setting)
    }
}
