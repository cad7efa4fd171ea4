//! Quotas that gateways share: for each caller a count of the day and one of the month, by the server's clock.

use super::{
    limit_part::{LimitPart, PartStatus},
    store_context::StoreContext,
    token_account::AccountLimit,
    token_accounts::{AccountKey, TokenAccounts},
};
use crate::{limit::limit_draw::QuotaDraw, telemetry::LimitKind};
use std::{sync::Arc, time::Duration};

const DAY: Duration = Duration::from_secs(86_400);
/// First bytes of the ids of quotas, which no rule has by more than chance.
const QUOTA_DOMAIN: u64 = 0x71_75_6f_74 << 32;

/// The quotas of all callers, with the accounts of this gateway.
#[derive(Debug)]
pub(super) struct SharedQuotas {
    days: Arc<TokenAccounts>,
    months: Arc<TokenAccounts>,
    context: Arc<StoreContext>,
}

/// A period of a quota.
struct QuotaPeriod {
    limit: LimitKind,
    max: u64,
    /// Number of the day or month.
    number: u32,
    reset: Duration,
    window: Duration,
}

impl SharedQuotas {
    pub(super) fn new(max_keys: usize, context: &Arc<StoreContext>) -> Self {
        let [days, months] = [(); 2].map(|()| context.new_accounts(max_keys));
        Self { days, months, context: Arc::clone(context) }
    }

    /// Returns the parts of a draw that concern the quotas of its caller: the month, then the day.
    pub(super) fn parts(&self, draw: &QuotaDraw<'_>) -> impl Iterator<Item = LimitPart<&Arc<TokenAccounts>>> + use<'_> {
        let now = self.context.calendar_now();
        let caller = draw.caller.bucket.hash();
        let month = draw.quota.per_month.map(|max| QuotaPeriod {
            limit: LimitKind::MonthlyQuota,
            max: max.get(),
            number: now.month,
            reset: now.until_month_end,
            window: now.month_length,
        });
        let day = draw.quota.per_day.map(|max| QuotaPeriod {
            limit: LimitKind::DailyQuota,
            max: max.get(),
            number: now.day,
            reset: now.until_day_end,
            window: DAY,
        });
        let month = month.map(|period| self.part(&self.months, caller, period));
        month.into_iter().chain(day.map(|period| self.part(&self.days, caller, period)))
    }

    fn part<'a>(
        &'a self,
        accounts: &'a Arc<TokenAccounts>,
        caller: u64,
        period: QuotaPeriod,
    ) -> LimitPart<&'a Arc<TokenAccounts>> {
        let QuotaPeriod { limit, max, number, reset, window } = period;
        let domain = QUOTA_DOMAIN | u64::from(number) << 1 | u64::from(limit == LimitKind::MonthlyQuota);
        let reset_nanos = u64::try_from(reset.as_nanos()).unwrap_or(u64::MAX);
        LimitPart {
            accounts,
            // Counts of an ended period are settled under their own key.
            key: AccountKey {
                hash: caller.rotate_left(number % 64),
                id: u128::from(domain) << 64 | u128::from(caller),
            },
            limit: AccountLimit::Quota { max, ends_at: self.context.now().now.saturating_add(reset_nanos) },
            status: PartStatus::Quota { limit, max, reset, window },
        }
    }

    /// Drops some of the callers whose periods have ended.
    pub(super) fn evict_expired(&self) {
        let now = self.context.now().now;
        self.days.evict_idle(now);
        self.months.evict_idle(now);
    }

    pub(super) fn set_max_keys(&self, max_keys: usize) {
        self.days.set_max_keys(max_keys);
        self.months.set_max_keys(max_keys);
    }

    pub(super) fn count(&self) -> usize {
        self.days.key_count() + self.months.key_count()
    }
}
