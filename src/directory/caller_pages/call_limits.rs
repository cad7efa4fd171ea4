//! The limits of a visitor's own calls to one agent, in words.

use crate::{
    values::{ByteSize, Rate},
    web_page::{bytes_text, count_text, duration_text, facts},
};
use maud::{Markup, html};
use std::{num::NonZeroU64, time::Duration};

/// The limits of one caller's calls to one agent.
#[derive(Clone, Debug)]
pub struct CallLimits {
    /// Requests from one address.
    pub per_address: Option<Rate>,
    /// Calls of the caller to all agents.
    pub per_caller: Option<Rate>,
    /// Calls of the caller to the agent.
    pub per_caller_agent: Option<Rate>,
    /// Calls of all callers to the agent.
    pub per_agent: Vec<Rate>,
    /// Calls of the caller per day.
    pub per_day: Option<NonZeroU64>,
    /// Calls of the caller per calendar month.
    pub per_month: Option<NonZeroU64>,
    /// Maximum size of an input that is compared with a schema.
    pub max_checked_body: ByteSize,
    /// Maximum size of any other input.
    pub max_streamed_body: ByteSize,
    /// How long the agent may take until its answer begins.
    pub first_byte_timeout: Duration,
    /// How long a call may take.
    pub total_timeout: Duration,
}

impl CallLimits {
    /// Returns the limits as a list of names and values.
    pub(super) fn render(&self, has_checked_inputs: bool) -> Markup {
        let rate = |rate: Option<Rate>| rate.map(|rate| html! { (rate_words(rate)) });
        let quota = |quota: Option<NonZeroU64>, period: &str| {
            quota.map(|quota| html! { (count_text(quota.get())) " calls per " (period) ", UTC" })
        };
        let of_agent = (!self.per_agent.is_empty()).then(|| {
            let rates: Vec<String> = self.per_agent.iter().take(10).map(|rate| rate_words(*rate)).collect();
            html! { (rates.join("; ")) }
        });
        let max_body = if has_checked_inputs { self.max_checked_body } else { self.max_streamed_body };
        facts([
            ("Your calls to this agent", rate(self.per_caller_agent)),
            ("Your calls to all agents", rate(self.per_caller)),
            ("Your daily quota", quota(self.per_day, "day")),
            ("Your monthly quota", quota(self.per_month, "calendar month")),
            ("Calls of all callers to this agent", of_agent),
            ("Requests from one address", rate(self.per_address)),
            ("Size of an input", Some(html! { "at most " (bytes_text(max_body.get() as u64)) })),
            ("Until the answer begins", Some(html! { "at most " (duration_text(self.first_byte_timeout)) })),
            ("Whole call", Some(html! { "at most " (duration_text(self.total_timeout)) })),
        ])
    }
}

/// Returns a rate as people read it.
fn rate_words(rate: Rate) -> String {
    let period = match rate.period.as_secs() {
        1 => "second",
        60 => "minute",
        3_600 => "hour",
        _ => "day",
    };
    let calls = count_text(rate.count.get().into());
    let burst = if rate.burst == rate.count {
        String::new()
    } else {
        format!(", {} at once after a pause", count_text(rate.burst.get().into()))
    };
    format!("{calls} per {period}{burst}")
}
