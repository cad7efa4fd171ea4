//! What both servers of the shared state do alike with logs: numbers of entries, bounds, gaps, lifetimes.

use super::support::{
    redis_cluster::RedisCluster,
    state_server::{StateServer, open_state},
};
use crate::support::{eventually, eventually_within};
use bytes::Bytes;
use gatepost::store::{LogAppend, LogPage, SharedState};
use std::time::Duration;

const LOG: u128 = 7 << 90 | 5;

/// Appends entries that say their index, from an index on.
fn append(first_index: Option<u64>, entries: std::ops::Range<u64>) -> LogAppend {
    LogAppend {
        log: LOG,
        header: Bytes::from(format!("header {}", entries.end)),
        first_index,
        entries: entries.map(|index| Bytes::from(format!("entry {index:04}"))).collect(),
        max_entries: 100,
        max_bytes: 10_000,
        lifetime: Duration::from_secs(60),
    }
}

async fn write(state: &SharedState, append: LogAppend) {
    state.append_to_logs(&[append]).await.unwrap();
}

async fn read(state: &SharedState, from: u64) -> LogPage {
    state.read_log(LOG, from, 100_000).await.unwrap().unwrap()
}

/// The indexes in a page, as its entries say them.
fn numbers(page: &LogPage) -> Vec<u64> {
    let number = |entry: &Bytes| String::from_utf8_lossy(entry).rsplit(' ').next().unwrap().parse().unwrap();
    page.entries.iter().map(number).collect()
}

async fn logs_are_numbered_bounded_and_end(mut server: StateServer) {
    let (one, two) = (server.open().await, server.open().await);
    assert_eq!(two.read_log(LOG, 0, 1_000).await.unwrap(), None);
    write(&one, append(Some(0), 0..0)).await;
    let empty = read(&two, 0).await;
    assert_eq!((empty.header, empty.first_index, empty.next_index), (Bytes::from("header 0"), 0, 0));
    write(&one, append(Some(0), 0..3)).await;
    // Sent again, in part or as a whole, as after a lost reply.
    for entries in [0..3, 1..5, 2..4, 0..2] {
        write(&one, append(Some(entries.start), entries)).await;
    }
    let page = read(&two, 0).await;
    assert_eq!((numbers(&page), page.first_index, page.next_index), (vec![0, 1, 2, 3, 4], 0, 5));
    assert_eq!(page.header, "header 5", "the header of a delayed append does not count");
    write(&one, LogAppend { header: Bytes::from_static(b"new"), ..append(Some(5), 5..5) }).await;
    assert_eq!(read(&two, 0).await.header, "new");
    assert_eq!(numbers(&read(&two, 3).await), [3, 4]);
    for beyond in [5, 9, 1 << 60, u64::MAX] {
        let page = read(&two, beyond).await;
        assert_eq!((numbers(&page), page.first_index, page.next_index), (vec![], 0, 5));
    }
    // Bounds of entries and of bytes; the newest entry is kept.
    write(&one, LogAppend { max_entries: 4, ..append(Some(5), 5..7) }).await;
    let page = read(&two, 0).await;
    assert_eq!((numbers(&page), page.first_index), (vec![3, 4, 5, 6], 3));
    write(&one, LogAppend { max_bytes: 25, ..append(Some(7), 7..8) }).await;
    assert_eq!(numbers(&read(&two, 0).await), [6, 7]);
    write(&one, LogAppend { max_bytes: 3, ..append(Some(8), 8..10) }).await;
    assert_eq!(numbers(&read(&two, 0).await), [9]);
    // A gap removes what is before it.
    write(&one, append(Some(10), 10..12)).await;
    write(&one, append(Some(20), 20..22)).await;
    let page = read(&two, 11).await;
    assert_eq!((numbers(&page), page.first_index, page.next_index), (vec![20, 21], 20, 22));
    // Pages of a size, with one entry at least.
    write(&one, append(Some(22), 22..100)).await;
    let small = two.read_log(LOG, 30, 35).await.unwrap().unwrap();
    assert_eq!(numbers(&small), [30, 31, 32]);
    assert_eq!(numbers(&two.read_log(LOG, 30, 1).await.unwrap().unwrap()), [30]);
    assert_eq!(numbers(&read(&two, 20).await).len(), 80);
    // Many logs in one trip, and entries that the server numbers.
    let mailbox = |log: u128, entries| LogAppend { log, ..append(None, entries) };
    let appends: Vec<LogAppend> = (100..140).map(|log| mailbox(log, 0..2)).collect();
    one.append_to_logs(&appends).await.unwrap();
    two.append_to_logs(&[mailbox(120, 2..3)]).await.unwrap();
    let page = one.read_log(120, 0, 1_000).await.unwrap().unwrap();
    assert_eq!((numbers(&page), page.next_index), (vec![0, 1, 2], 3));
    // Bytes that are no text.
    let binary: Bytes = (0..=255_u8).collect();
    write(&one, LogAppend { header: binary.clone(), entries: vec![binary.clone()], ..append(Some(100), 0..0) }).await;
    let page = read(&two, 100).await;
    assert_eq!((page.header, page.entries), (binary.clone(), vec![binary]));
    // The end of a lifetime.
    write(&one, LogAppend { lifetime: Duration::from_millis(300), ..append(Some(101), 101..102) }).await;
    eventually("the log ends", async || two.read_log(LOG, 0, 1_000).await.unwrap().is_none()).await;
    write(&one, append(Some(102), 102..103)).await;
    let page = read(&two, 0).await;
    assert_eq!((numbers(&page), page.first_index), (vec![102], 102), "a new log begins where the writer is");
    // A server that lost its data.
    server.lose_data().await;
    eventually_within(Duration::from_secs(20), "the empty server is used", async || {
        one.append_to_logs(&[append(Some(103), 103..104)]).await.is_ok()
    })
    .await;
    eventually("it is read", async || two.read_log(LOG, 0, 1_000).await.is_ok_and(|page| page.is_some())).await;
    assert_eq!(read(&two, 0).await.first_index, 103);
}

#[tokio::test]
async fn redis_numbers_bounds_and_ends_logs() {
    logs_are_numbered_bounded_and_end(StateServer::redis().await).await;
}

#[tokio::test]
async fn postgresql_numbers_bounds_and_ends_logs() {
    logs_are_numbered_bounded_and_end(StateServer::postgres().await).await;
}

async fn gateways_know_whether_another_is_alive(server: StateServer) {
    let (one, two) = (server.open().await, server.open().await);
    let gateway = two.gateway_id().to_owned();
    assert!(one.check_gateway(&gateway).await.unwrap());
    assert!(!one.check_gateway("another").await.unwrap());
    drop(two);
    eventually_within(Duration::from_secs(15), "it is gone", async || !one.check_gateway(&gateway).await.unwrap())
        .await;
    assert!(one.check_gateway(one.gateway_id()).await.unwrap());
}

#[tokio::test]
async fn redis_says_whether_a_gateway_is_alive() {
    gateways_know_whether_another_is_alive(StateServer::redis().await).await;
}

#[tokio::test]
async fn postgresql_says_whether_a_gateway_is_alive() {
    gateways_know_whether_another_is_alive(StateServer::postgres().await).await;
}

#[tokio::test]
async fn each_log_is_in_one_slot_of_a_redis_cluster() {
    let cluster = RedisCluster::start().await;
    let state = open_state(&cluster.section()).await;
    let appends: Vec<LogAppend> = (0..200).map(|log| LogAppend { log, ..append(Some(0), 0..2) }).collect();
    state.append_to_logs(&appends).await.unwrap();
    for log in 0..200 {
        assert_eq!(numbers(&state.read_log(log, 0, 1_000).await.unwrap().unwrap()), [0, 1]);
    }
    assert!(state.check_gateway(state.gateway_id()).await.unwrap());
}
