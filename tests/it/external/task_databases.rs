//! Tasks in a PostgreSQL database: gateways that share it, and an outage of it.

use super::support::postgres::Postgres;
use crate::{
    support::{
        agent::{Agent, Step},
        eventually, eventually_within,
        gateway::gateway,
    },
    tasks::{call_with_prefer, request_as, task_path, wait_for_status},
};
use futures_util::future::join_all;
use gatepost::{
    store::{StoreLocation, StoredTask, TaskLimits, TaskPage, TaskRefusal, TaskStore, TaskSummary, open_tasks},
    values::ClientKey,
};
use rustix::process::Signal;
use serde_json::json;
use std::{sync::Arc, time::Duration};
use tempfile::TempDir;
use time::OffsetDateTime;

#[tokio::test]
async fn r79_gateways_with_one_database_share_tasks_and_fail_those_of_a_dead_gateway() {
    let mut server = Postgres::start().await;
    let address = server.create_database().await;
    let echo = Agent::echo().await;
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let shared = format!("tasks:\n  database: {address}\n  lease_ttl: 4s\n  poll_interval: 1s\n");
    let build = || gateway().section(&shared).agent("echo", &echo).agent("silent", &silent);
    let (one, two) = (build().start().await, build().start().await);
    let completed = task_path(&call_with_prefer(&one, "echo", "respond-async").await);
    assert_eq!(wait_for_status(&two, &completed, "completed").await["result"], json!({"echo": {"text": "hi"}}));
    let canceled = task_path(&call_with_prefer(&one, "silent", "respond-async").await);
    eventually("the agent receives the call", async || silent.call_count() == 1).await;
    assert_eq!(request_as(&two, "team-a", "GET", &canceled).await.json()["status"], "working");
    assert_eq!(request_as(&two, "team-a", "DELETE", &canceled).await.json()["status"], "canceled");
    eventually("the other gateway disconnects from the agent", async || silent.aborted_responses() == 1).await;
    wait_for_status(&one, &canceled, "canceled").await;
    let lost = task_path(&call_with_prefer(&one, "silent", "respond-async").await);
    let working = task_path(&call_with_prefer(&two, "silent", "respond-async").await);
    eventually("the agent receives the call", async || silent.call_count() == 3).await;
    one.send_signal(Signal::KILL);
    assert_eq!(wait_for_status(&two, &lost, "failed").await["error"]["code"], "Overloaded");
    assert_eq!(
        request_as(&two, "team-a", "GET", &working).await.json()["status"],
        "working",
        "the task of the other gateway continues"
    );
    server.stop();
    let down = request_as(&two, "team-a", "GET", &completed).await;
    down.expect_fault(503, "Overloaded");
    assert!(down.header("retry-after").is_some());
    server.restart().await;
    wait_for_status(&two, &completed, "completed").await;
}

#[tokio::test]
async fn r79_a_database_outage_longer_than_the_lease_fails_no_task_of_a_running_gateway() {
    let mut server = Postgres::start().await;
    let address = server.create_database().await;
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let abandoned = Agent::with_steps(vec![Step::Hang]).await;
    let tasks =
        format!("tasks:\n  database: {address}\n  lease_ttl: 1s\n  poll_interval: 1s\n  max_tasks_per_caller: 8\n");
    let echo = Agent::echo().await;
    let build =
        || gateway().section(&tasks).agent("silent", &silent).agent("echo", &echo).agent("abandoned", &abandoned);
    let (one, two, dying) = (build().start().await, build().start().await, build().start().await);
    let mut tasks = Vec::new();
    for gate in [&one, &two, &one, &two] {
        tasks.push(task_path(&call_with_prefer(gate, "silent", "respond-async").await));
    }
    eventually("all agents are called", async || silent.call_count() == 4).await;
    for _ in 0..12 {
        // A caller has at most eight tasks, so each call has to wait for the end of an earlier one.
        eventually("the task is accepted", async || {
            call_with_prefer(&one, "echo", "respond-async").await.status == 202
        })
        .await;
    }
    let lost = task_path(&call_with_prefer(&dying, "abandoned", "respond-async").await);
    eventually("the agent is called", async || abandoned.call_count() == 1).await;
    server.stop();
    // The outage has to last longer than the lease of a second.
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.restart().await;
    for path in &tasks {
        for gate in [&one, &two] {
            eventually("the task can be read again", async || {
                request_as(gate, "team-a", "GET", path).await.status == 200
            })
            .await;
        }
    }
    // The task of a gateway that dies now fails, so the tasks whose lease has ended have been looked for again. After an
    // outage the gateways give each other ten seconds for a heartbeat.
    dying.send_signal(Signal::KILL);
    let has_failed = async || request_as(&one, "team-a", "GET", &lost).await.json()["status"] == "failed";
    eventually_within(Duration::from_secs(40), "the task of the dead gateway is failed", has_failed).await;
    let failed = request_as(&one, "team-a", "GET", &lost).await.json();
    assert_eq!(failed["error"]["code"], "Overloaded", "{failed}");
    for path in &tasks {
        for gate in [&one, &two] {
            assert_eq!(request_as(gate, "team-a", "GET", path).await.json()["status"], "working");
        }
    }
    assert_eq!(silent.aborted_responses(), 0, "no response was aborted");
}

const LIMITS: TaskLimits = TaskLimits {
    per_owner: 4,
    per_client: 6,
    total: 100,
    reserved_size: 1_000,
    size_per_client: 6_000,
    total_size: 100_000,
};

const CLIENT: ClientKey = ClientKey::new(7);

fn task(owner: &str, id: &str) -> StoredTask {
    StoredTask {
        id: id.into(),
        owner: owner.into(),
        gateway_id: "gateway".into(),
        is_running: true,
        expires: OffsetDateTime::now_utc() + Duration::from_secs(3_600),
        callback_due: None,
        record: "x".repeat(100).into(),
        summary: None,
    }
}

async fn open(location: &StoreLocation) -> Arc<dyn TaskStore> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    open_tasks(location).await.unwrap()
}

fn database(address: &str) -> StoreLocation {
    StoreLocation::Database { address: address.parse().unwrap(), authorities: None }
}

#[tokio::test]
async fn r79_the_limits_of_owner_client_and_store_are_refusals_of_their_own_in_both_databases() {
    let folder = TempDir::new().unwrap();
    let mut server = Postgres::start().await;
    let locations = [StoreLocation::File(folder.path().join("tasks.db")), database(&server.create_database().await)];
    for location in &locations {
        let store = open(location).await;
        let insert = async |owner: &str, id: &str| store.insert(&task(owner, id), CLIENT, LIMITS).await.unwrap();
        for (owner, id) in [("one", "a"), ("one", "b"), ("one", "c"), ("one", "d")] {
            assert_eq!(insert(owner, id).await, None);
        }
        assert_eq!(insert("one", "e").await, Some(TaskRefusal::OwnerLimit));
        assert_eq!(insert("two", "e").await, None, "a refused task counts for no client");
        assert_eq!(insert("two", "f").await, None);
        assert_eq!(insert("three", "g").await, Some(TaskRefusal::ClientLimit));
        let other = ClientKey::new(8);
        assert_eq!(store.insert(&task("four", "h"), other, LIMITS).await.unwrap(), None);
        let full = TaskLimits { total: 7, ..LIMITS };
        assert_eq!(store.insert(&task("four", "i"), other, full).await.unwrap(), Some(TaskRefusal::TotalLimit));

        // Ended tasks count with their own size: 6 tasks, and 4200 bytes of 6000.
        let owners: [Arc<str>; 2] = ["one".into(), "three".into()];
        let can_make_room = async |owner: &Arc<str>, limits: TaskLimits, deletions: u32| {
            store.can_make_room(owner, CLIENT, limits, deletions).await.unwrap()
        };
        assert!(!can_make_room(&owners[0], LIMITS, 10).await, "no task has ended");
        assert!(store.record_end(&task("one", "a")).await.unwrap());
        assert!(store.record_end(&task("one", "b")).await.unwrap());
        assert!(!store.record_end(&task("one", "b")).await.unwrap());
        assert!(can_make_room(&owners[0], LIMITS, 1).await && !can_make_room(&owners[1], LIMITS, 10).await);
        let smaller = TaskLimits { size_per_client: 5_000, ..LIMITS };
        assert!(!can_make_room(&owners[0], smaller, 1).await && can_make_room(&owners[0], smaller, 2).await);
        let fewer = TaskLimits { per_client: 5, ..LIMITS };
        assert!(!can_make_room(&owners[0], fewer, 1).await && can_make_room(&owners[0], fewer, 2).await);
        assert_eq!(insert("three", "g").await, Some(TaskRefusal::ClientLimit), "nothing was deleted");
        assert!(store.delete_ended(&owners[0], CLIENT, 1).await.unwrap());
        assert!(store.get("a").await.unwrap().is_none() && store.get("b").await.unwrap().is_some());
        assert_eq!(insert("three", "g").await, None);
        assert_eq!(insert("three", "j").await, Some(TaskRefusal::ClientLimit));

        // The task that expires is the client's, so that the client may have another one.
        let mut expired = task("two", "f");
        expired.expires = OffsetDateTime::now_utc() - Duration::from_secs(1);
        assert!(store.record_end(&expired).await.unwrap());
        assert!(store.delete_expired(OffsetDateTime::now_utc()).await.unwrap());
        assert_eq!(insert("three", "j").await, None);
        assert_eq!(insert("three", "k").await, Some(TaskRefusal::ClientLimit));
    }
}

#[tokio::test]
async fn r79_operators_list_the_tasks_of_all_owners_the_newest_first_in_both_databases() {
    let folder = TempDir::new().unwrap();
    let mut server = Postgres::start().await;
    let locations = [StoreLocation::File(folder.path().join("tasks.db")), database(&server.create_database().await)];
    let start = OffsetDateTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
    let listed = |number: u32, state: &str| StoredTask {
        summary: Some(TaskSummary {
            // Two tasks of each second.
            created: start + Duration::from_secs(u64::from(number / 2)),
            agent: if number.is_multiple_of(3) { "echo".into() } else { "other".into() },
            state: state.into(),
            text: format!("text of {number}").into(),
        }),
        ..task(&format!("owner-{number}"), &format!("{number:032}"))
    };
    let limits = TaskLimits { per_client: 100, size_per_client: 100_000, ..LIMITS };
    for location in &locations {
        let store = open(location).await;
        for number in 0..25 {
            assert_eq!(store.insert(&listed(number, "working"), CLIENT, limits).await.unwrap(), None);
        }
        for number in [3, 4] {
            assert!(store.record_end(&listed(number, "failed")).await.unwrap());
        }
        let (mut numbers, mut page) = (Vec::new(), TaskPage { limit: 10, ..TaskPage::default() });
        loop {
            let rows = store.list(&page).await.unwrap();
            assert!(rows.iter().all(|row| row.text.starts_with("text of ")), "{rows:?}");
            let of_row = |id: &str| id.parse::<u32>().unwrap();
            numbers.extend(rows.iter().map(|row| of_row(&row.id)));
            let Some(last) = rows.last() else { break };
            let created = start + Duration::from_secs(u64::from(of_row(&last.id) / 2));
            page.after = Some((created, Arc::clone(&last.id)));
        }
        assert_eq!(numbers, (0..25).rev().collect::<Vec<u32>>());
        let select = async |agent: Option<&str>, state: Option<&str>| -> Vec<String> {
            let page = TaskPage { agent: agent.map(Into::into), state: state.map(Into::into), limit: 100, after: None };
            store.list(&page).await.unwrap().iter().map(|row| row.owner.to_string()).collect()
        };
        assert_eq!(select(None, Some("failed")).await, ["owner-4", "owner-3"]);
        assert_eq!(select(Some("echo"), Some("failed")).await, ["owner-3"]);
        assert_eq!(select(Some("echo"), None).await.len(), 9);
        assert!(select(Some("' or 1 = 1"), None).await.is_empty());
        let counts = store.count_states().await.unwrap();
        let counts: Vec<(&str, u64)> = counts.iter().map(|count| (&*count.state, count.count)).collect();
        assert_eq!(counts, [("failed", 2), ("working", 23)]);
    }
}

/// Two gateways that end a task at once wait for the same lock.
#[tokio::test]
async fn r79_a_task_that_two_gateways_end_at_once_releases_its_reservation_once() {
    let mut server = Postgres::start().await;
    let address = server.create_database().await;
    let location = database(&address);
    let stores = [open(&location).await, open(&location).await];
    for id in ["a", "b"] {
        assert_eq!(stores[0].insert(&task("one", id), CLIENT, LIMITS).await.unwrap(), None);
    }
    let is_locked = "do $$ begin perform 1 from pg_locks where not granted; if not found then \
        raise exception 'nobody waits'; end if; end $$";
    let lock = format!("begin; update gatepost_task_count set tasks = tasks; select pg_sleep(2); {is_locked}; commit");
    let ended = task("one", "a");
    let (_, outcomes) = tokio::join!(server.run_sql(&address, &lock), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        join_all(stores.iter().map(|store| store.record_end(&ended))).await
    });
    assert_eq!(outcomes.into_iter().filter(|outcome| *outcome.as_ref().unwrap()).count(), 1);
    for table in ["gatepost_task_count", "gatepost_task_clients"] {
        let check = format!(
            "do $$ begin perform 1 from {table} where tasks = 2 and size = 1100; if not found then \
            raise exception 'the size in {table} is wrong'; end if; end $$"
        );
        server.run_sql(&address, &check).await;
    }
}
