//! What both servers of the shared state do alike: exchange tokens, and count gateways.

use super::support::state_server::StateServer;
use crate::support::{eventually, eventually_within};
use gatepost::store::{SharedState, StateError, TokenBatch, TokenEntry, TokenLimit, TokenReply};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime},
};

/// Slow enough that no token is gained during a test.
const SLOW: Duration = Duration::from_secs(1_000);
const SLOW_MICROS: u64 = 1_000_000_000;
/// How much of a bucket's level may be over after a trip.
const TOLERANCE: u64 = 30_000_000;

fn rate(burst: u32) -> TokenLimit {
    TokenLimit::Rate { refill_interval: SLOW, burst }
}

fn quota(max: u64) -> TokenLimit {
    TokenLimit::Quota { max, lifetime: Duration::from_secs(3_600) }
}

fn entry(id: u128, limit: TokenLimit, settled: i64, drawn: u32) -> TokenEntry {
    TokenEntry { id, limit, settled, drawn, known_level: 0, restores: false }
}

/// One gateway, which numbers its batches.
struct Gateway {
    state: Arc<SharedState>,
    sequence: AtomicU64,
}

impl Gateway {
    async fn open(server: &StateServer) -> Self {
        Self { state: server.open().await, sequence: AtomicU64::new(0) }
    }

    async fn exchange(&self, entries: &[TokenEntry]) -> Vec<TokenReply> {
        let sequence = self.sequence.fetch_add(1, Relaxed) + 1;
        self.send(sequence, entries).await.unwrap()
    }

    async fn send(&self, sequence: u64, entries: &[TokenEntry]) -> Option<Vec<TokenReply>> {
        self.send_after(0, sequence, entries).await
    }

    /// Sends a batch of a gateway that knows the batch `confirmed` to be applied.
    async fn send_after(&self, confirmed: u64, sequence: u64, entries: &[TokenEntry]) -> Option<Vec<TokenReply>> {
        let batch = TokenBatch { sequence, confirmed, shard: 0, entries: entries.to_vec() };
        Some(self.state.exchange_tokens(&[batch], self.state.limit_timeout()).await.ok()?.remove(0))
    }

    /// Exchanges one entry; returns how many tokens were granted, and the level.
    async fn exchange_one(&self, entry: TokenEntry) -> (u32, u64) {
        let reply = self.exchange(&[entry]).await[0];
        (reply.granted, reply.level)
    }
}

#[track_caller]
fn assert_level(level: u64, tokens: u64) {
    let full = tokens * SLOW_MICROS;
    assert!(level <= full && level + TOLERANCE >= full, "{level} is not the level of {tokens} tokens");
}

async fn tokens_are_drawn_settled_and_refunded(server: StateServer) {
    let gateway = Gateway::open(&server).await;
    for (step, (settled, drawn, granted, tokens)) in [
        (0, 4, 4, 4),
        (0, 10, 6, 10),
        (0, 1, 0, 10),
        (-3, 5, 3, 10),
        (-4, 0, 0, 6),
        (3, 2, 1, 10),
        // More than the burst is counted up to the double, for spent tokens must be paid.
        (5, 1, 0, 15),
        (50, 1, 0, 20),
        (-30, 0, 0, 0),
        (0, 11, 10, 10),
    ]
    .into_iter()
    .enumerate()
    {
        let (got, level) = gateway.exchange_one(entry(1, rate(10), settled, drawn)).await;
        assert_eq!(got, granted, "step {step}");
        assert_level(level, tokens);
    }
    for (step, (settled, drawn, granted, count)) in
        [(0, 3, 3, 3), (0, 9, 2, 5), (0, 1, 0, 5), (-2, 1, 1, 4), (4, 1, 0, 8), (-20, 0, 0, 0), (0, 6, 5, 5)]
            .into_iter()
            .enumerate()
    {
        let reply = gateway.exchange_one(entry(2, quota(5), settled, drawn)).await;
        assert_eq!(reply, (granted, count), "step {step}");
    }
    let both = gateway.exchange(&[entry(4, quota(5), 0, 1), entry(3, rate(10), 0, 2), entry(2, quota(9), 0, 9)]).await;
    assert_eq!(both.iter().map(|reply| reply.granted).collect::<Vec<_>>(), [1, 2, 4], "in the order of the entries");
}

#[tokio::test]
async fn redis_draws_settles_and_refunds_tokens() {
    tokens_are_drawn_settled_and_refunded(StateServer::redis().await).await;
}

#[tokio::test]
async fn postgresql_draws_settles_and_refunds_tokens() {
    tokens_are_drawn_settled_and_refunded(StateServer::postgres().await).await;
}

async fn a_batch_is_applied_once(server: StateServer) {
    let (one, two) = (Gateway::open(&server).await, Gateway::open(&server).await);
    let entries = [entry(1, rate(10), 1, 4), entry(2, quota(10), 2, 4)];
    let granted = |replies: &[TokenReply]| replies.iter().map(|reply| reply.granted).collect::<Vec<_>>();
    assert_eq!(granted(&one.send(7, &entries).await.unwrap()), [4, 4]);
    for (sequence, granted_before) in [(7, [4, 4]), (6, [0, 0]), (1, [0, 0]), (7, [4, 4])] {
        let repeated = one.send(sequence, &entries).await.unwrap();
        assert_eq!(granted(&repeated), granted_before, "batch {sequence}");
        assert_level(repeated[0].level, 5);
        assert_eq!(repeated[1].level, 6);
    }
    let other = two.send(1, &entries).await.unwrap();
    assert_eq!(granted(&other), [4, 2], "another gateway has numbers of its own");
    assert_eq!(granted(&one.send(8, &[entry(1, rate(10), -10, 3)]).await.unwrap()), [3]);
    assert_eq!(granted(&one.send(9, &[entry(1, rate(10), 1, 0)]).await.unwrap()), [0]);
    assert_eq!(granted(&one.send(9, &[entry(1, rate(10), 1, 0)]).await.unwrap()), [0], "nothing was drawn");
}

#[tokio::test]
async fn redis_applies_a_batch_of_a_gateway_once() {
    a_batch_is_applied_once(StateServer::redis().await).await;
}

#[tokio::test]
async fn postgresql_applies_a_batch_of_a_gateway_once() {
    a_batch_is_applied_once(StateServer::postgres().await).await;
}

async fn lost_data_is_restored_from_known_levels(mut server: StateServer) {
    let gateway = Gateway::open(&server).await;
    let entries = [entry(1, rate(10), 0, 6), entry(2, quota(10), 0, 6)];
    let known: Vec<u64> = gateway.exchange(&entries).await.iter().map(|reply| reply.level).collect();
    server.lose_data().await;
    let restored = [
        TokenEntry { known_level: known[0], ..entry(1, rate(10), 1, 9) },
        TokenEntry { known_level: known[1], ..entry(2, quota(10), 1, 9) },
    ];
    let mut replies = Vec::new();
    eventually("the gateway uses the empty server", async || {
        let sequence = gateway.sequence.fetch_add(1, Relaxed) + 1;
        replies = gateway.send(sequence, &restored).await.unwrap_or_default();
        !replies.is_empty()
    })
    .await;
    assert_eq!([replies[0].granted, replies[1].granted], [3, 3], "what was known is counted");
    let ignored = TokenEntry { known_level: 0, ..entry(2, quota(10), 0, 1) };
    assert_eq!(gateway.exchange_one(ignored).await, (0, 10), "the server knows more than the gateway");
}

#[tokio::test]
async fn redis_begins_with_known_levels_after_it_lost_its_data() {
    lost_data_is_restored_from_known_levels(StateServer::redis().await).await;
}

#[tokio::test]
async fn postgresql_begins_with_known_levels_after_it_lost_its_data() {
    lost_data_is_restored_from_known_levels(StateServer::postgres().await).await;
}

/// A promoted replica has older entries, and an older number of the gateway's last batch.
async fn a_server_that_is_behind_restores_levels(server: StateServer) {
    let gateway = Gateway::open(&server).await;
    let levels = |bucket, count| {
        [
            TokenEntry { known_level: bucket * SLOW_MICROS, ..entry(1, rate(10), 1, 0) },
            TokenEntry { known_level: count, ..entry(2, quota(10), 1, 0) },
        ]
    };
    let check = |replies: &[TokenReply], was_behind, tokens| {
        assert_eq!([replies[0].was_behind, replies[1].was_behind], [was_behind; 2]);
        assert_level(replies[0].level, tokens);
        assert_eq!(replies[1].level, tokens);
    };
    check(&gateway.send_after(0, 1, &levels(0, 0)).await.unwrap(), false, 1);
    let replies = gateway.send_after(1, 2, &levels(7, 7)).await.unwrap();
    check(&replies, false, 2);
    // The gateway has had replies until batch 8, and knows of seven tokens.
    let replies = gateway.send_after(8, 9, &levels(7, 7)).await.unwrap();
    check(&replies, true, 8);
    check(&gateway.send_after(8, 9, &levels(7, 7)).await.unwrap(), true, 8);
    check(&gateway.send_after(9, 10, &levels(9, 9)).await.unwrap(), false, 9);
    let restores = levels(9, 9).map(|entry| TokenEntry { settled: -4, restores: true, ..entry });
    check(&gateway.send_after(10, 11, &restores).await.unwrap(), false, 5);
    let less = levels(1, 1).map(|entry| TokenEntry { restores: true, ..entry });
    check(&gateway.send_after(11, 12, &less).await.unwrap(), false, 6);
}

#[tokio::test]
async fn redis_restores_levels_if_it_is_behind() {
    a_server_that_is_behind_restores_levels(StateServer::redis().await).await;
}

#[tokio::test]
async fn postgresql_restores_levels_if_it_is_behind() {
    a_server_that_is_behind_restores_levels(StateServer::postgres().await).await;
}

#[tokio::test]
async fn a_refused_batch_of_postgresql_changes_nothing_and_is_no_outage() {
    let server = StateServer::postgres().await;
    let gateway = Gateway::open(&server).await;
    for _ in 0..5 {
        let twice = [entry(1, quota(10), 1, 0), entry(1, quota(10), 1, 0)];
        let sequence = gateway.sequence.fetch_add(1, Relaxed) + 1;
        let batch = TokenBatch { sequence, confirmed: 0, shard: 0, entries: twice.to_vec() };
        let result = gateway.state.exchange_tokens(&[batch], gateway.state.limit_timeout()).await;
        assert!(matches!(result, Err(StateError::Refused(_))), "{result:?}");
    }
    assert!(gateway.state.is_available());
    assert_eq!(gateway.exchange_one(entry(1, quota(10), 1, 0)).await, (0, 1));
}

/// Gateways draw from the same entries in different orders, so that rows that are locked in the order of the entries would
/// end in a deadlock.
async fn gateways_never_draw_more_than_there_is(server: StateServer) {
    const ENTRIES: u128 = 8;
    const MAX: u32 = 150;
    let gateways = [Gateway::open(&server).await, Gateway::open(&server).await, Gateway::open(&server).await];
    let draw_all = |gateway: usize| {
        let gateway = &gateways[gateway];
        async move {
            let mut granted = [0_u32; ENTRIES as usize];
            let mut rounds = 0;
            loop {
                let mut ids: Vec<u128> = (0..ENTRIES).collect();
                fastrand::shuffle(&mut ids);
                let limit = |id: u128| if id.is_multiple_of(2) { rate(MAX) } else { quota(MAX.into()) };
                let entries: Vec<_> = ids.iter().map(|id| entry(*id, limit(*id), 0, fastrand::u32(1..4))).collect();
                let replies = gateway.exchange(&entries).await;
                replies.iter().zip(&ids).for_each(|(reply, id)| granted[*id as usize] += reply.granted);
                rounds += 1;
                if rounds > 20 && replies.iter().all(|reply| reply.granted == 0) {
                    return granted;
                }
            }
        }
    };
    let (one, two, three) = tokio::join!(draw_all(0), draw_all(1), draw_all(2));
    let sums: Vec<u32> = one.iter().zip(two).zip(three).map(|((one, two), three)| one + two + three).collect();
    assert_eq!(sums, [MAX; ENTRIES as usize], "each token is granted once");
}

#[tokio::test]
async fn redis_grants_gateways_exactly_what_there_is() {
    gateways_never_draw_more_than_there_is(StateServer::redis().await).await;
}

#[tokio::test]
async fn postgresql_grants_gateways_exactly_what_there_is() {
    gateways_never_draw_more_than_there_is(StateServer::postgres().await).await;
}

async fn entries_end_and_are_deleted(server: StateServer) {
    let gateway = Gateway::open(&server).await;
    let fast = TokenLimit::Rate { refill_interval: Duration::from_millis(50), burst: 10 };
    let short = TokenLimit::Quota { max: 10, lifetime: Duration::from_millis(500) };
    let entries = [entry(1, fast, 0, 10), entry(2, short, 0, 10), entry(3, rate(10), 0, 1)];
    assert!(gateway.exchange(&entries).await[..2].iter().all(|reply| reply.granted == 10));
    assert_eq!(server.token_entries().await, 3);
    assert!(gateway.exchange_one(entry(1, fast, 0, 10)).await.0 < 10, "it takes half a second to fill");
    eventually("both end", async || server.token_entries().await == 1).await;
    let again = gateway.exchange(&entries[..2]).await;
    assert!(again.iter().all(|reply| reply.granted == 10), "{again:?}");
    let many: Vec<_> = (100..1_800).map(|id| entry(id, fast, 0, 1)).collect();
    gateway.exchange(&many).await;
    eventually("ended entries are deleted", async || server.token_entries().await == 1).await;
}

#[tokio::test]
async fn redis_deletes_buckets_and_quotas_after_their_end() {
    entries_end_and_are_deleted(StateServer::redis().await).await;
}

#[tokio::test]
async fn postgresql_deletes_buckets_and_quotas_after_their_end() {
    entries_end_and_are_deleted(StateServer::postgres().await).await;
}

async fn gateways_count_each_other(server: StateServer) {
    let one = server.open().await;
    assert_eq!(one.gateway_count(), 1);
    let two = server.open().await;
    assert_eq!(two.gateway_count(), 2, "the first heartbeat is sent before the state is open");
    eventually("the other gateway counts it", async || one.gateway_count() == 2).await;
    let three = server.open().await;
    two.leave().await;
    drop(two);
    eventually("a gateway that leaves is not counted", async || one.gateway_count() == 2).await;
    let started = Instant::now();
    drop(three);
    eventually_within(Duration::from_secs(15), "a dead gateway is not counted", async || one.gateway_count() == 1)
        .await;
    assert!(started.elapsed() > Duration::from_secs(3), "a gateway counts for seconds after its last heartbeat");
    let own = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert!(one.server_time().abs_diff(own) < Duration::from_millis(500), "both have one clock");
}

#[tokio::test]
async fn redis_counts_the_gateways_that_are_alive() {
    gateways_count_each_other(StateServer::redis().await).await;
}

#[tokio::test]
async fn postgresql_counts_the_gateways_that_are_alive() {
    gateways_count_each_other(StateServer::postgres().await).await;
}

async fn a_gateway_survives_outages(mut server: StateServer) {
    let gateway = Gateway::open(&server).await;
    let draw = [entry(1, quota(100), 0, 1)];
    let draws = async || {
        let sequence = gateway.sequence.fetch_add(1, Relaxed) + 1;
        gateway.send(sequence, &draw).await.is_some()
    };
    assert!(draws().await);
    for is_paused in [true, false] {
        if is_paused {
            server.pause();
        } else {
            server.persist().await;
            server.stop();
        }
        eventually("the outage is noticed", async || {
            draws().await;
            !gateway.state.is_available()
        })
        .await;
        let started = Instant::now();
        assert!(!draws().await);
        // A trip would take the whole second.
        assert!(started.elapsed() < Duration::from_millis(700), "nothing waits while the server is not available");
        if is_paused {
            server.resume();
        } else {
            server.restart().await;
        }
        eventually("the server is used again", async || gateway.state.is_available() && draws().await).await;
    }
    assert!(gateway.exchange_one(draw[0]).await.1 > 3, "the count is kept");
}

#[tokio::test]
async fn redis_may_hang_and_restart() {
    a_gateway_survives_outages(StateServer::redis().await).await;
}

#[tokio::test]
async fn postgresql_may_hang_and_restart() {
    a_gateway_survives_outages(StateServer::postgres().await).await;
}

#[tokio::test]
async fn both_servers_reply_alike_to_random_exchanges() {
    let (redis, postgres) = (StateServer::redis().await, StateServer::postgres().await);
    let (one, two) = (Gateway::open(&redis).await, Gateway::open(&postgres).await);
    let random = fastrand::Rng::with_seed(fastrand::u64(..));
    let seed = random.get_seed();
    let mut random = random;
    let (mut last_sequence, mut last_entries) = (0, Vec::new());
    for step in 0..300 {
        let mut ids: Vec<u128> = (0..6).collect();
        random.shuffle(&mut ids);
        let count = random.usize(1..6);
        let entries: Vec<TokenEntry> = ids
            .into_iter()
            .take(count)
            .map(|id| TokenEntry {
                known_level: random.u64(0..20) * if id < 3 { SLOW_MICROS } else { 1 },
                restores: random.u8(..10) == 0,
                ..entry(id, if id < 3 { rate(12) } else { quota(12) }, random.i64(-6..6), random.u32(0..8))
            })
            .collect();
        let sequence = random.u64(step..step + 3);
        // A batch that is sent again has the same entries.
        let entries = if sequence == last_sequence { last_entries.clone() } else { entries };
        if sequence > last_sequence {
            (last_sequence, last_entries) = (sequence, entries.clone());
        }
        let confirmed = random.u64(step.saturating_sub(3)..=step);
        let replies = [
            one.send_after(confirmed, sequence, &entries).await.unwrap(),
            two.send_after(confirmed, sequence, &entries).await.unwrap(),
        ];
        for (entry, (redis, postgres)) in entries.iter().zip(replies[0].iter().zip(&replies[1])) {
            let context = format!("seed {seed}, step {step}, {entry:?}: {redis:?} {postgres:?}");
            let tolerance = if matches!(entry.limit, TokenLimit::Quota { .. }) { 0 } else { TOLERANCE };
            assert!(redis.level.abs_diff(postgres.level) <= tolerance, "{context}");
            assert_eq!((redis.granted, redis.was_behind), (postgres.granted, postgres.was_behind), "{context}");
        }
    }
}
