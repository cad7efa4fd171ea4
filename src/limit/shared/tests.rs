//! The accounts of several gateways against one ideal bucket: a model of the server, random times, lost replies.

mod exchanges;

use super::account_decision::AccountDecision;
use super::token_account::{AccountLimit, DecisionContext, DrawOutcome, ExchangeReply, TokenAccount, WaitingDraw};
use crate::store::{TokenEntry, TokenLimit, TokenReply};
use proptest::prelude::*;
use std::time::Duration;
use tokio::sync::oneshot;

/// The server's bucket or quota, as the script decides.
#[derive(Debug, Default)]
struct ModelServer {
    full_at: u64,
    count: u64,
    batches: Vec<ModelBatch>,
}

/// A gateway's last batch.
#[derive(Clone, Copy, Debug, Default)]
struct ModelBatch {
    sequence: u64,
    granted: u32,
}

impl ModelServer {
    fn exchange(&mut self, now: u64, gateway: usize, sequence: u64, entry: TokenEntry) -> TokenReply {
        self.batches.resize(self.batches.len().max(gateway + 1), ModelBatch::default());
        let last = self.batches[gateway];
        let is_new = sequence > last.sequence;
        let (settled, drawn) = if is_new { (entry.settled, entry.drawn) } else { (0, 0) };
        let (granted, level) = self.apply(now, entry.limit, settled, drawn);
        if is_new {
            self.batches[gateway] = ModelBatch { sequence, granted };
        }
        TokenReply { granted: self.batches[gateway].granted, level, was_behind: false }
    }

    fn apply(&mut self, now: u64, limit: TokenLimit, settled: i64, drawn: u32) -> (u32, u64) {
        match limit {
            TokenLimit::Rate { refill_interval, burst } => {
                let unit = i128::try_from(refill_interval.as_nanos()).unwrap();
                let capacity = unit * i128::from(burst);
                let level = i128::from(self.full_at.saturating_sub(now));
                let level = (level + i128::from(settled) * unit).clamp(0, 2 * capacity);
                let granted = u32::try_from(((capacity - level).max(0) / unit).min(drawn.into())).unwrap();
                let level = u64::try_from(level + unit * i128::from(granted)).unwrap();
                self.full_at = now + level;
                (granted, level.div_ceil(1_000))
            }
            TokenLimit::Quota { max, .. } => {
                self.count = u64::try_from(i64::try_from(self.count).unwrap() + settled).unwrap();
                let granted = u32::try_from(max.saturating_sub(self.count).min(drawn.into())).unwrap();
                self.count += u64::from(granted);
                (granted, self.count)
            }
        }
    }
}

/// A gateway with its account, and an exchange whose reply was lost.
struct ModelGateway {
    account: TokenAccount,
    sequence: u64,
    unanswered: Option<TokenEntry>,
    /// When the exchange without a reply was sent first.
    first_sent_at: u64,
    /// Tokens that were drawn for calls that have left, and may not be given back yet.
    lost_draws: u64,
}

/// What becomes of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    Nothing,
    /// The server has applied it.
    Reply,
    Request,
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum ModelEvent {
    /// Time passes.
    Wait { micros: u64 },
    /// A call arrives. If it draws and there is no reply, it is refused.
    Call { gateway: usize, count: u32, loss: Loss },
    /// A gateway settles.
    Settle { gateway: usize, loss: Loss },
}

/// Gateways that share one limit, and the level that an ideal bucket without a limit would have.
struct Model {
    limit: AccountLimit,
    server: ModelServer,
    gateways: Vec<ModelGateway>,
    now: u64,
    ideal_level: i128,
    /// What the bucket may have gained of tokens before they were given back late: these are given back twice.
    gained_twice: i128,
    /// Tokens of lost draws since the bucket was full. Other gateways may not know that they were given back, and what the
    /// bucket may have gained of them is not given back.
    late_returns: u64,
    admitted: u64,
}

impl Model {
    fn new(limit: AccountLimit, gateways: usize) -> Self {
        let new = || ModelGateway {
            account: TokenAccount::new(1, limit),
            sequence: 0,
            unanswered: None,
            first_sent_at: 0,
            lost_draws: 0,
        };
        Self {
            limit,
            server: ModelServer::default(),
            gateways: (0..gateways).map(|_| new()).collect(),
            now: 1_000_000,
            ideal_level: 0,
            gained_twice: 0,
            late_returns: 0,
            admitted: 0,
        }
    }

    fn unit_and_max(&self) -> (i128, u64) {
        match self.limit {
            AccountLimit::Rate { refill_interval, burst } => (refill_interval.into(), burst.into()),
            AccountLimit::Quota { max, .. } => (1, max),
        }
    }

    /// Tokens by which one gateway may exceed the limit.
    fn allowance(&self) -> u64 {
        (self.unit_and_max().1 / (4 * self.gateways.len() as u64)).max(1)
    }

    fn context(&self) -> DecisionContext {
        let gateways = u32::try_from(self.gateways.len()).unwrap();
        DecisionContext { now: self.now, gateways, is_available: true }
    }

    fn wait(&mut self, micros: u64) {
        self.now += micros * 1_000;
        if matches!(self.limit, AccountLimit::Rate { .. }) {
            self.ideal_level = (self.ideal_level - i128::from(micros) * 1_000).max(0);
            if self.server.full_at <= self.now {
                self.late_returns = 0;
            }
            if self.ideal_level == 0 {
                self.gained_twice = 0;
            }
        }
    }

    /// Makes an exchange of a gateway, if it has anything to send; first the one whose reply was lost.
    fn exchange(&mut self, gateway: usize, loss: Loss) {
        let (context, now, (unit, _)) = (self.context(), self.now, self.unit_and_max());
        let this = &mut self.gateways[gateway];
        let (entry, draws) = match this.unanswered.take() {
            Some(entry) => (TokenEntry { drawn: 0, ..entry }, Vec::new()),
            None => match this.account.begin_exchange(context.now, 0) {
                None => return,
                Some(exchange) => {
                    (this.sequence, this.first_sent_at) = (this.sequence + 1, now);
                    exchange
                }
            },
        };
        let mut has_returns = false;
        let reply = (loss != Loss::Request).then(|| self.server.exchange(now, gateway, this.sequence, entry));
        match reply.filter(|_| loss == Loss::Nothing) {
            Some(reply) => {
                let first_sent_at = this.first_sent_at;
                if draws.is_empty() {
                    self.gained_twice += i128::from(now - first_sent_at).min(unit / 2);
                    self.late_returns += u64::from(reply.granted);
                    has_returns = reply.granted > 0;
                }
                let reply = ExchangeReply { reply, sent_at: now, first_sent_at, losses: 0 };
                this.account.finish_exchange(reply, draws);
            }
            None => {
                this.lost_draws += u64::from(entry.drawn);
                this.unanswered = Some(entry);
            }
        }
        if this.unanswered.is_none() && this.account.unsettled() == 0 {
            this.lost_draws = 0;
        }
        if has_returns {
            // They are settled at once; later, the bucket may have gained more of them.
            self.exchange(gateway, Loss::Nothing);
        }
    }

    /// Makes a call, which draws if it must, and returns whether it is admitted.
    fn call(&mut self, gateway: usize, count: u32, loss: Loss) -> bool {
        let context = self.context();
        let is_admitted = match self.gateways[gateway].account.acquire(count, context) {
            AccountDecision::Granted { .. } => true,
            AccountDecision::Refused { .. } => false,
            AccountDecision::Undecided => {
                let (outcome, mut receiver) = oneshot::channel();
                self.gateways[gateway].account.wait(WaitingDraw { count, outcome });
                if self.gateways[gateway].unanswered.is_some() {
                    // An exchange without a reply is repeated before the draw.
                    self.exchange(gateway, Loss::Nothing);
                }
                self.exchange(gateway, loss);
                if loss == Loss::Nothing {
                    // Tokens that are too few for the call are returned soon.
                    self.exchange(gateway, Loss::Nothing);
                }
                matches!(receiver.try_recv(), Ok(DrawOutcome::Granted { .. }))
            }
        };
        if is_admitted {
            self.admitted += u64::from(count);
            self.ideal_level += self.unit_and_max().0 * i128::from(count);
        }
        is_admitted
    }

    fn check(&self, event: ModelEvent) {
        let (unit, max) = self.unit_and_max();
        let bound = unit * i128::from(max + self.gateways.len() as u64 * self.allowance());
        // Levels travel in whole microseconds.
        assert!(self.ideal_level <= bound + self.gained_twice + 1_000, "{event:?}: {} > {bound}", self.ideal_level);
        for gateway in &self.gateways {
            let unsettled = u64::try_from(gateway.account.unsettled()).unwrap_or_default();
            assert!(unsettled <= self.allowance(), "{event:?}: a kill would lose {unsettled} tokens");
        }
    }

    fn run(&mut self, events: &[ModelEvent]) {
        for event in events {
            match *event {
                ModelEvent::Wait { micros } => self.wait(micros),
                ModelEvent::Settle { gateway, loss } => self.exchange(gateway % self.gateways.len(), loss),
                ModelEvent::Call { gateway, count, loss } => {
                    let level_before = self.ideal_level;
                    // Tokens that are given back late.
                    let lost: u64 = self.gateways.iter().map(|gateway| gateway.lost_draws).sum();
                    let lost = lost + self.late_returns;
                    let is_admitted = self.call(gateway % self.gateways.len(), count, loss);
                    let (unit, max) = self.unit_and_max();
                    // Tokens that are settled late are refilled late.
                    let late = match self.limit {
                        AccountLimit::Rate { .. } => self.gateways.len() as u64 * self.allowance(),
                        AccountLimit::Quota { .. } => 0,
                    };
                    let after = level_before + unit * i128::from(u64::from(count) + late + lost);
                    let would_fit = after + 1_000 <= unit * i128::from(max);
                    assert!(is_admitted || !would_fit || loss != Loss::Nothing, "{event:?}: refused at {level_before}");
                }
            }
            self.check(*event);
        }
    }
}

fn losses() -> impl Strategy<Value = Loss> {
    prop_oneof![4 => Just(Loss::Nothing), 1 => Just(Loss::Reply), 1 => Just(Loss::Request)]
}

fn events() -> impl Strategy<Value = Vec<ModelEvent>> {
    let event = prop_oneof![
        2 => (0_u64..40_000).prop_map(|micros| ModelEvent::Wait { micros }),
        6 => (0_usize..5, 1_u32..4, losses())
            .prop_map(|(gateway, count, loss)| ModelEvent::Call { gateway, count, loss }),
        2 => (0_usize..5, losses()).prop_map(|(gateway, loss)| ModelEvent::Settle { gateway, loss }),
    ];
    prop::collection::vec(event, 0..400)
}

proptest! {
    #[test]
    fn gateways_differ_from_an_ideal_bucket_by_at_most_their_allowance(
        events in events(),
        gateways in 1_usize..5,
        burst in 3_u32..200,
        interval_micros in 500_u64..50_000,
    ) {
        let limit = AccountLimit::Rate { refill_interval: interval_micros * 1_000, burst };
        Model::new(limit, gateways).run(&events);
    }

    #[test]
    fn gateways_exceed_a_quota_by_at_most_their_allowance_and_count_every_call(
        events in events(),
        gateways in 1_usize..5,
        max in 3_u64..400,
    ) {
        let mut model = Model::new(AccountLimit::Quota { max, ends_at: u64::MAX }, gateways);
        model.run(&events);
        for gateway in 0..gateways {
            model.exchange(gateway, Loss::Nothing);
            model.exchange(gateway, Loss::Nothing);
        }
        assert_eq!(model.server.count, model.admitted, "every call is counted once, also after lost replies");
    }
}

const SECOND: u64 = 1_000_000_000;

/// A bucket of 60 tokens that gains one a second, and three gateways.
fn account_and_context() -> (TokenAccount, DecisionContext) {
    let limit = AccountLimit::Rate { refill_interval: SECOND, burst: 60 };
    (TokenAccount::new(1, limit), DecisionContext { now: SECOND, gateways: 3, is_available: true })
}

/// A reply to an exchange that was sent at the time of [`account_and_context`].
fn reply(granted: u32, level: u64) -> ExchangeReply {
    ExchangeReply {
        reply: TokenReply { granted, level, was_behind: false },
        sent_at: SECOND,
        first_sent_at: SECOND,
        losses: 0,
    }
}

#[test]
fn below_half_of_its_limit_an_account_spends_ahead_up_to_its_allowance() {
    let (mut account, context) = account_and_context();
    for spent in 1..=5 {
        assert_eq!(account.acquire(1, context), AccountDecision::Granted { remaining: 60 - spent });
    }
    assert_eq!(account.acquire(1, context), AccountDecision::Undecided, "60 / (4 x 3) tokens are unsettled");
    let (entry, _) = account.begin_exchange(context.now, 0).unwrap();
    assert_eq!((entry.settled, entry.drawn), (5, 0));
    assert_eq!(account.acquire(1, context), AccountDecision::Undecided, "the exchange has no reply yet");
    account.finish_exchange(reply(0, 31_000_000), Vec::new());
    assert_eq!(account.acquire(1, context), AccountDecision::Undecided, "others have used half of the limit");
    let later = DecisionContext { now: 3 * SECOND, ..context };
    assert_eq!(account.acquire(1, later), AccountDecision::Granted { remaining: 30 }, "two tokens are refilled");
}

#[test]
fn a_bucket_that_the_server_calls_empty_refuses_without_a_trip() {
    let (mut account, context) = account_and_context();
    let (outcome, mut receiver) = oneshot::channel();
    account.wait(WaitingDraw { count: 1, outcome });
    let (entry, draws) = account.begin_exchange(context.now, 0).unwrap();
    assert_eq!((entry.settled, entry.drawn), (0, 1));
    account.finish_exchange(reply(0, 59_500_000), draws);
    let retry_after = Some(Duration::from_millis(500));
    assert_eq!(receiver.try_recv(), Ok(DrawOutcome::Refused { remaining: 0, retry_after }));
    assert_eq!(account.acquire(1, context), AccountDecision::Refused { remaining: 0, retry_after });
    assert_eq!(account.acquire(61, context), AccountDecision::Refused { remaining: 0, retry_after: None });
    assert!(account.begin_exchange(context.now, 0).is_none());
}

#[test]
fn a_call_that_left_returns_its_tokens() {
    let (mut account, context) = account_and_context();
    let (outcome, receiver) = oneshot::channel();
    drop(receiver);
    account.wait(WaitingDraw { count: 4, outcome });
    let (_, draws) = account.begin_exchange(context.now, 0).unwrap();
    account.finish_exchange(reply(4, 4_000_000), draws);
    assert_eq!(account.begin_exchange(context.now, 0).unwrap().0.settled, -4);
}

#[test]
fn without_the_server_gateways_together_grant_the_rate_of_one() {
    let (_, context) = account_and_context();
    let away = DecisionContext { is_available: false, ..context };
    let mut gateways = [(); 3].map(|()| account_and_context().0);
    let mut admitted = 0;
    for second in 0..300 {
        let at = DecisionContext { now: away.now + second * SECOND, ..away };
        for account in &mut gateways {
            admitted += (0..5).filter(|_| matches!(account.acquire(1, at), AccountDecision::Granted { .. })).count();
        }
    }
    assert!((340..=360).contains(&admitted), "burst 60 and 300 seconds, and not three times that: {admitted}");
    // Then the server is back: what the gateways have used is settled, so that the bucket is as empty as it was.
    let back = DecisionContext { now: away.now + 299 * SECOND, ..context };
    let settled: i64 = gateways.iter_mut().map(|account| account.begin_exchange(back.now, 0).unwrap().0.settled).sum();
    assert!((54..=60).contains(&settled), "{settled}");
}

#[test]
fn a_part_of_a_limit_is_as_full_as_the_whole_was() {
    let (mut account, context) = account_and_context();
    let (outcome, _receiver) = oneshot::channel();
    account.wait(WaitingDraw { count: 1, outcome });
    let (_, draws) = account.begin_exchange(context.now, 0).unwrap();
    account.finish_exchange(reply(1, 45_000_000), draws);
    let away = DecisionContext { is_available: false, ..context };
    let granted = (0..20).filter(|_| matches!(account.acquire(1, away), AccountDecision::Granted { .. })).count();
    assert_eq!(granted, 5, "a third of the fifteen tokens that were left");
    account.refund(2);
    let granted = (0..20).filter(|_| matches!(account.acquire(1, away), AccountDecision::Granted { .. })).count();
    assert_eq!(granted, 2, "refunded tokens are those of the part");
}

#[test]
fn a_part_is_settled_as_it_was_divided_whatever_number_of_gateways_is_known_then() {
    // When the server is back, the first gateway counts one, the next one two.
    for known_gateways in [1, 2, 3, 9] {
        let (mut account, context) = account_and_context();
        for _ in 0..4 {
            assert!(matches!(account.acquire(1, context), AccountDecision::Granted { .. }));
        }
        let (entry, _) = account.begin_exchange(context.now, 0).unwrap();
        account.finish_exchange(reply(0, 4_000_000), Vec::new());
        assert!(matches!(account.acquire(1, context), AccountDecision::Granted { .. }));
        let away = DecisionContext { is_available: false, ..context };
        let granted = (0..20).filter(|_| matches!(account.acquire(1, away), AccountDecision::Granted { .. })).count();
        assert_eq!(granted, 17, "a third of the 56 tokens that were left, without the unsettled one");
        let back = DecisionContext { gateways: known_gateways, ..context };
        assert_eq!(
            entry.settled + account.begin_exchange(back.now, 0).unwrap().0.settled,
            4 + 1 + 17,
            "{known_gateways}"
        );
    }
}

#[test]
fn tokens_of_an_exchange_without_a_reply_are_settled_once_after_an_outage() {
    let (mut account, context) = account_and_context();
    for _ in 0..3 {
        account.acquire(1, context);
    }
    assert_eq!(account.begin_exchange(context.now, 0).unwrap().0.settled, 3);
    account.acquire(1, context);
    let away = DecisionContext { is_available: false, ..context };
    for _ in 0..5 {
        assert!(matches!(account.acquire(1, away), AccountDecision::Granted { .. }));
    }
    // The trip is repeated before anything else is sent.
    account.finish_exchange(reply(0, 3_000_000), Vec::new());
    assert_eq!(account.begin_exchange(context.now, 0).unwrap().0.settled, 1 + 5);
}

#[test]
fn without_the_server_a_quota_grants_a_part_of_what_is_left_and_settles_it_later() {
    let limit = AccountLimit::Quota { max: 100, ends_at: 1_000 * SECOND };
    let (mut account, context) = (TokenAccount::new(1, limit), account_and_context().1);
    let (outcome, _receiver) = oneshot::channel();
    account.wait(WaitingDraw { count: 1, outcome });
    let (_, draws) = account.begin_exchange(context.now, 0).unwrap();
    account.finish_exchange(reply(1, 70), draws);
    let away = DecisionContext { is_available: false, ..context };
    // The call of the draw has left, so that its token is returned.
    let granted = (0..50).filter(|_| matches!(account.acquire(1, away), AccountDecision::Granted { .. })).count();
    assert_eq!(granted, 10, "a third of the thirty that are left");
    assert!(matches!(account.acquire(1, away), AccountDecision::Refused { retry_after: Some(_), .. }));
    assert_eq!(account.begin_exchange(context.now, 0).unwrap().0.settled, 10);
}

#[test]
fn a_used_up_quota_is_asked_for_again_after_seconds_because_others_may_have_given_calls_back() {
    let limit = AccountLimit::Quota { max: 9, ends_at: 1_000 * SECOND };
    let (mut account, context) = (TokenAccount::new(1, limit), account_and_context().1);
    account.wait(WaitingDraw { count: 1, outcome: oneshot::channel().0 });
    let (_, draws) = account.begin_exchange(context.now, 0).unwrap();
    account.finish_exchange(reply(0, 9), draws);
    let after = |seconds: u64| DecisionContext { now: context.now + seconds * SECOND, ..context };
    for seconds in [0, 4] {
        assert!(matches!(account.acquire(1, after(seconds)), AccountDecision::Refused { .. }), "{seconds}");
    }
    assert_eq!(account.acquire(1, after(5)), AccountDecision::Undecided);
    account.wait(WaitingDraw { count: 1, outcome: oneshot::channel().0 });
    assert!(matches!(account.acquire(1, after(5)), AccountDecision::Refused { .. }), "one call asks");
}

#[test]
fn an_account_is_idle_when_its_bucket_is_full_and_nothing_is_unsettled() {
    let (mut account, context) = account_and_context();
    assert!(account.is_idle(context.now));
    assert!(matches!(account.acquire(1, context), AccountDecision::Granted { .. }));
    assert!(!account.is_idle(context.now), "a token is to be settled");
    let (_, draws) = account.begin_exchange(context.now, 0).unwrap();
    assert!(!account.is_idle(context.now), "the exchange has no reply yet");
    account.finish_exchange(reply(0, 1_000_000), draws);
    assert!(!account.is_idle(context.now) && account.is_idle(context.now + SECOND));
}
