//! Refused changes, which callers and strangers can cause without end. They have a budget of their own, so that they push
//! no change out of the log, and wait in a bounded queue, so that a request that is refused occupies no thread.

use super::{
    audit_entry::{AuditAction, AuditEntry},
    audit_line::{ChainPosition, format_line},
    config::{AuditConfig, DEFAULT_MAX_SIZE, DEFAULT_RETENTION},
};
use crate::telemetry::LogPrivacy;
use std::collections::{BTreeMap, HashMap};
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};

/// Maximum number of refusals that wait to be written.
const MAX_QUEUED: usize = 128;
/// Maximum number of refusals that are recorded in a second, of one actor and of all.
const MAX_PER_SECOND: u32 = 10;
const MAX_OF_ALL_PER_SECOND: u32 = 50;
/// The part of `audit.max_size` that the refusals of strangers may have within `audit.retention`, and as much for those of
/// callers.
const SHARE_OF_SIZE: u64 = 8;
/// The part of the bytes of callers that one owner may have: a caller, or all users of an OAuth client.
const OWNER_SHARE: u64 = 4;
/// Maximum number of owners whose bytes are counted. An owner beyond has a place when another has its whole share again.
const MAX_OWNERS: usize = 1_024;
/// Maximum bytes of either kind in a day.
const MAX_BYTES_PER_DAY: u64 = 2 << 20;
/// How long refusals are counted before an entry has their number.
const SUMMARY_INTERVAL: Duration = Duration::HOUR;
const MILLIS_PER_DAY: u64 = 86_400_000;

/// The refusals that wait to be written, and the count of those beyond the budget.
pub(super) struct RefusalQueue {
    waiting: Vec<AuditEntry>,
    of_second: RefusalsOfSecond,
    of_strangers: ByteBudget,
    of_callers: ByteBudget,
    of_owners: OwnerBudgets,
    omitted: OmittedRefusals,
}

impl RefusalQueue {
    pub(super) fn new(config: &AuditConfig) -> Self {
        let budget = ByteBudget::new(bytes_per_day(config));
        Self {
            waiting: Vec::new(),
            of_second: RefusalsOfSecond::default(),
            of_strangers: budget.clone(),
            of_owners: OwnerBudgets::new((budget.bytes_per_day / OWNER_SHARE).max(1)),
            of_callers: budget,
            omitted: OmittedRefusals::default(),
        }
    }

    /// Adds a refusal, unless it is beyond the budget; returns whether it was added. Others are only counted.
    pub(super) fn add(&mut self, entry: AuditEntry, privacy: &LogPrivacy) -> bool {
        let (budget, mut owner) = if entry.is_of_stranger() {
            (&mut self.of_strangers, None)
        } else {
            (&mut self.of_callers, self.of_owners.budget_of(&entry.actor, entry.time))
        };
        budget.refill(entry.time);
        let has_bytes = budget.has_bytes() && owner.as_ref().is_none_or(|owner| owner.has_bytes());
        let is_within_budget =
            self.waiting.len() < MAX_QUEUED && has_bytes && self.of_second.admit(&entry.actor, entry.time);
        if is_within_budget {
            let bytes = line_bytes(&entry, privacy);
            budget.charge(bytes);
            if let Some(owner) = &mut owner {
                owner.charge(bytes);
            }
            self.waiting.push(entry);
        } else {
            self.omitted.add(&entry);
        }
        is_within_budget
    }

    /// Takes the refusals that wait, with an entry about those that were only counted, once an hour.
    pub(super) fn take(&mut self, now: OffsetDateTime) -> Vec<AuditEntry> {
        let mut taken = std::mem::take(&mut self.waiting);
        taken.extend(
            self.omitted.since.filter(|since| now - *since >= SUMMARY_INTERVAL).and_then(|_| self.take_omitted()),
        );
        taken
    }

    /// Takes the entry about the refusals that were only counted.
    pub(super) fn take_omitted(&mut self) -> Option<AuditEntry> {
        std::mem::take(&mut self.omitted).into_entry()
    }
}

/// The bytes of each owner, so that one of them does not use up those of all callers.
struct OwnerBudgets {
    bytes_per_day: u64,
    by_owner: HashMap<String, ByteBudget>,
}

impl OwnerBudgets {
    fn new(bytes_per_day: u64) -> Self {
        Self { bytes_per_day, by_owner: HashMap::new() }
    }

    /// Returns the budget of the owner of an actor; `None` where too many owners have used theirs, so that only the budget
    /// of all counts.
    fn budget_of(&mut self, actor: &str, now: OffsetDateTime) -> Option<&mut ByteBudget> {
        // All users of a client count as one.
        let owner = actor.split_once('|').map_or(actor, |(client, _)| client);
        if !self.by_owner.contains_key(owner) {
            if self.by_owner.len() >= MAX_OWNERS {
                self.by_owner.retain(|_, budget| {
                    budget.refill(now);
                    !budget.is_full()
                });
            }
            if self.by_owner.len() >= MAX_OWNERS {
                return None;
            }
            self.by_owner.insert(owner.to_owned(), ByteBudget::new(self.bytes_per_day));
        }
        let budget = self.by_owner.get_mut(owner)?;
        budget.refill(now);
        Some(budget)
    }
}

/// Returns the bytes that refusals of one kind may have in a day.
fn bytes_per_day(config: &AuditConfig) -> u64 {
    let max_size = config.max_size.unwrap_or(DEFAULT_MAX_SIZE).get() as u64;
    let retention = config.retention.unwrap_or(DEFAULT_RETENTION).get();
    let days = (retention.as_secs() / 86_400).max(1);
    (max_size / SHARE_OF_SIZE / days).min(MAX_BYTES_PER_DAY)
}

fn line_bytes(entry: &AuditEntry, privacy: &LogPrivacy) -> u64 {
    format_line(entry, privacy, &ChainPosition::start()).len() as u64 + 1
}

/// Bytes for one kind of refusals: those of a day at once, and as many in the course of each further day.
#[derive(Clone)]
struct ByteBudget {
    bytes_per_day: u64,
    /// Bytes × milliseconds of a day, so that few bytes a day do not become none.
    available: i64,
    refilled_at: Option<OffsetDateTime>,
}

impl ByteBudget {
    fn new(bytes_per_day: u64) -> Self {
        Self { bytes_per_day, available: scaled(bytes_per_day, MILLIS_PER_DAY), refilled_at: None }
    }

    /// Adds the bytes of the time since the last call.
    fn refill(&mut self, now: OffsetDateTime) {
        let elapsed = self.refilled_at.map_or(Duration::ZERO, |last| now - last).max(Duration::ZERO);
        let millis = u64::try_from(elapsed.whole_milliseconds()).unwrap_or_default();
        if millis > 0 || self.refilled_at.is_none() {
            self.refilled_at = Some(now);
        }
        let refilled = self.available.saturating_add(scaled(self.bytes_per_day, millis));
        self.available = refilled.min(scaled(self.bytes_per_day, MILLIS_PER_DAY));
    }

    /// Returns whether there are bytes for an entry. The last entry may need more than there are.
    const fn has_bytes(&self) -> bool {
        self.available > 0
    }

    fn is_full(&self) -> bool {
        self.available >= scaled(self.bytes_per_day, MILLIS_PER_DAY)
    }

    fn charge(&mut self, bytes: u64) {
        self.available = self.available.saturating_sub(scaled(bytes, MILLIS_PER_DAY));
    }
}

fn scaled(bytes: u64, millis: u64) -> i64 {
    i64::try_from(bytes.saturating_mul(millis)).unwrap_or(i64::MAX)
}

/// The refusals of the current second.
#[derive(Default)]
struct RefusalsOfSecond {
    second: i64,
    recorded: u32,
    recorded_by_actor: HashMap<String, u32>,
}

impl RefusalsOfSecond {
    /// Counts one of an actor, unless it is beyond a bound; returns whether it is within both.
    fn admit(&mut self, actor: &str, now: OffsetDateTime) -> bool {
        if self.second != now.unix_timestamp() {
            *self = Self { second: now.unix_timestamp(), ..Self::default() };
        }
        if self.recorded >= MAX_OF_ALL_PER_SECOND {
            return false;
        }
        let of_actor = self.recorded_by_actor.entry(actor.to_owned()).or_default();
        if *of_actor >= MAX_PER_SECOND {
            return false;
        }
        *of_actor += 1;
        self.recorded += 1;
        true
    }
}

/// The refusals that were only counted.
#[derive(Default)]
struct OmittedRefusals {
    since: Option<OffsetDateTime>,
    by_action: BTreeMap<&'static str, u64>,
    of_strangers: u64,
}

impl OmittedRefusals {
    fn add(&mut self, entry: &AuditEntry) {
        self.since.get_or_insert(entry.time);
        *self.by_action.entry(entry.action.name()).or_default() += 1;
        self.of_strangers += u64::from(entry.is_of_stranger());
    }

    fn into_entry(self) -> Option<AuditEntry> {
        let since = self.since?;
        let counts: Vec<String> = self.by_action.iter().map(|(action, count)| format!("{action}: {count}")).collect();
        let time = since.replace_nanosecond(0).unwrap_or(since).format(&Rfc3339).unwrap_or_default();
        let detail = format!("since {time}: {}; of strangers: {}", counts.join(", "), self.of_strangers);
        Some(AuditEntry::by_gateway(AuditAction::RefusalsOmitted, "").refused(detail))
    }
}
