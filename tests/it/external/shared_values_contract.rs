//! What both servers of the shared state do alike with small values: lifetimes, bounds, values that are taken once, and
//! pages of what has changed.

use super::support::state_server::StateServer;
use crate::support::{eventually, eventually_within};
use gatepost::store::{NewValue, Redemption, RedemptionAttempt, SharedState, ValueChanges, ValueKey, ValueKind};
use std::{sync::Arc, time::Duration};

const MINUTE: Duration = Duration::from_secs(60);

fn key(number: u32) -> ValueKey {
    let mut key = [0; 32];
    key[..4].copy_from_slice(&number.to_be_bytes());
    key
}

fn value(number: u32, lifetime: Duration) -> NewValue {
    NewValue { key: key(number), value: number.to_string().into_bytes(), lifetime }
}

async fn put(state: &SharedState, kind: ValueKind, values: &[NewValue]) -> Vec<bool> {
    state.put_values(kind, values).await.unwrap()
}

async fn get(state: &SharedState, kind: ValueKind, number: u32) -> Option<Vec<u8>> {
    state.get_value(kind, &key(number)).await.unwrap()
}

async fn values_end_and_are_bounded(server: StateServer) {
    let (one, two) = (server.open().await, server.open().await);
    let kind = ValueKind::PairedPage;
    assert_eq!(get(&one, kind, 1).await, None);
    assert_eq!(put(&one, kind, &[value(1, Duration::from_millis(400)), value(2, MINUTE)]).await, [true, true]);
    assert_eq!(get(&two, kind, 2).await.unwrap(), b"2");
    assert_eq!(get(&two, ValueKind::Revocation, 2).await, None, "kinds are apart");
    eventually("a value ends", async || get(&two, kind, 1).await.is_none()).await;
    // A full kind loses the value that ends first.
    let many: Vec<NewValue> = (10..1_009).map(|number| value(number, 2 * MINUTE)).collect();
    for batch in many.chunks(500) {
        assert!(put(&one, kind, batch).await.iter().all(|is_stored| *is_stored));
    }
    assert!(get(&one, kind, 2).await.is_some(), "there is room for a thousand");
    assert_eq!(put(&one, kind, &[value(3, MINUTE)]).await, [true]);
    assert_eq!((get(&one, kind, 2).await, get(&one, kind, 3).await.is_some()), (None, true));
    put(&one, kind, &[value(3, 3 * MINUTE)]).await;
    assert!(get(&one, kind, 10).await.is_some(), "replacing a value needs no room");
    // One code for all gateways: the next one replaces it.
    put(&one, ValueKind::PairingCode, &[value(1, MINUTE)]).await;
    put(&two, ValueKind::PairingCode, &[value(2, MINUTE / 2)]).await;
    assert_eq!(get(&one, ValueKind::PairingCode, 1).await, None);
    assert!(get(&one, ValueKind::PairingCode, 2).await.is_some());
}

#[tokio::test]
async fn redis_ends_and_bounds_values() {
    values_end_and_are_bounded(StateServer::redis().await).await;
}

#[tokio::test]
async fn postgresql_ends_and_bounds_values() {
    values_end_and_are_bounded(StateServer::postgres().await).await;
}

async fn a_value_is_taken_once(server: StateServer) {
    let (one, two) = (server.open().await, server.open().await);
    let kind = ValueKind::PairingCode;
    let redeem = async |state: &SharedState, presented: &str| {
        let attempt = RedemptionAttempt { presented: presented.as_bytes(), max_mismatches: 5 };
        state.redeem_value(kind, &key(7), attempt).await.unwrap()
    };
    assert_eq!(redeem(&one, "7").await, Redemption::Absent);
    put(&one, kind, &[value(7, MINUTE)]).await;
    assert_eq!(redeem(&two, "8").await, Redemption::Mismatch);
    let tries = (0..20).map(|at| redeem(if at % 2 == 0 { &one } else { &two }, "7"));
    let results = futures_util::future::join_all(tries).await;
    assert_eq!(results.iter().filter(|result| **result == Redemption::Redeemed).count(), 1, "{results:?}");
    assert_eq!(results.iter().filter(|result| **result == Redemption::Absent).count(), 19);
    // Five mismatches over all gateways delete the value.
    put(&one, kind, &[value(7, MINUTE)]).await;
    for at in 0..5 {
        assert_eq!(redeem(if at % 2 == 0 { &one } else { &two }, "x").await, Redemption::Mismatch, "{at}");
    }
    assert_eq!(redeem(&one, "7").await, Redemption::Absent);
    // A new value has no mismatches yet.
    put(&one, kind, &[value(7, MINUTE)]).await;
    for _ in 0..4 {
        redeem(&one, "x").await;
    }
    put(&one, kind, &[value(7, MINUTE)]).await;
    for _ in 0..4 {
        redeem(&one, "x").await;
    }
    assert_eq!(redeem(&one, "7").await, Redemption::Redeemed);
    put(&one, kind, &[value(7, Duration::from_millis(200))]).await;
    eventually("it ends", async || {
        redeem(&one, "7").await == Redemption::Absent || redeem(&one, "7").await == Redemption::Redeemed
    })
    .await;
}

#[tokio::test]
async fn redis_lets_a_value_be_taken_once() {
    a_value_is_taken_once(StateServer::redis().await).await;
}

#[tokio::test]
async fn postgresql_lets_a_value_be_taken_once() {
    a_value_is_taken_once(StateServer::postgres().await).await;
}

/// Reads every page after a position; returns the numbers of the values in order, and the last page.
async fn read_after(state: &SharedState, mut position: u64) -> (Vec<u32>, ValueChanges) {
    let mut numbers = Vec::new();
    loop {
        let page = state.changed_values(ValueKind::Revocation, position, 7).await.unwrap();
        for value in &page.values {
            assert!(value.lifetime > Duration::ZERO && value.lifetime <= MINUTE, "{value:?}");
            numbers.push(String::from_utf8(value.value.clone()).unwrap().parse().unwrap());
        }
        if !page.has_more() {
            return (numbers, page);
        }
        position = page.position;
    }
}

async fn changes_are_read_in_pages_and_none_is_missed(mut server: StateServer) {
    let (one, two) = (server.open().await, server.open().await);
    let kind = ValueKind::Revocation;
    let (numbers, page) = read_after(&one, 0).await;
    assert_eq!((numbers.len(), page.newest, page.count), (0, 0, 0));
    let values: Vec<NewValue> = (0..20).map(|number| value(number, MINUTE)).collect();
    put(&one, kind, &values).await;
    let (numbers, first) = read_after(&two, 0).await;
    assert_eq!((numbers, first.count), ((0..20).collect(), 20));
    assert_eq!(read_after(&two, first.position).await.0, [0; 0]);
    put(&two, kind, &[value(3, MINUTE), value(30, Duration::from_millis(300))]).await;
    let (numbers, second) = read_after(&one, first.position).await;
    assert_eq!((numbers, second.count), (vec![3, 30], 21), "a replaced value is a change");
    eventually("a value that has ended is not counted", async || read_after(&one, 0).await.1.count == 20).await;
    assert_eq!(read_after(&one, 0).await.0.len(), 20);
    // Gateways write at once, and a reader that follows them misses nothing.
    let writers = [Arc::clone(&one), Arc::clone(&two)].into_iter().enumerate().map(|(writer, state)| async move {
        for at in 0..40_u32 {
            let number = 1_000 + 100 * u32::try_from(writer).unwrap() + at;
            put(&state, kind, &[value(number, MINUTE)]).await;
        }
    });
    let follow = async {
        let (mut seen, mut position) = (Vec::new(), second.position);
        eventually("everything is read", async || {
            let (numbers, page) = read_after(&two, position).await;
            seen.extend(numbers);
            position = page.position;
            seen.len() >= 80
        })
        .await;
        seen.sort_unstable();
        seen
    };
    let (_, seen) = tokio::join!(futures_util::future::join_all(writers), follow);
    assert_eq!(seen, (1_000..1_040).chain(1_100..1_140).collect::<Vec<_>>());
    // After a loss positions go on: a reader sees that they are behind its own, or what is stored again.
    let before = read_after(&one, 0).await.1.newest;
    server.lose_data().await;
    eventually_within(Duration::from_secs(20), "the empty server is used", async || {
        one.changed_values(kind, 0, 7).await.is_ok_and(|page| page.newest == 0 && page.count == 0)
    })
    .await;
    put(&one, kind, &[value(5, MINUTE)]).await;
    let (numbers, page) = read_after(&one, before).await;
    assert_eq!((numbers, page.count), (vec![5], 1));
    assert!(page.newest > before);
}

#[tokio::test]
async fn redis_returns_changed_values_in_order() {
    changes_are_read_in_pages_and_none_is_missed(StateServer::redis().await).await;
}

#[tokio::test]
async fn postgresql_returns_changed_values_in_order() {
    changes_are_read_in_pages_and_none_is_missed(StateServer::postgres().await).await;
}
