//! The console's pages of tasks and of the audit log.

use crate::{
    console_keys::{console, page_as, send_form},
    support::{
        agent::{Agent, Step},
        eventually,
        gateway::gateway,
    },
    tasks::{call_with_prefer, task_path, wait_for_status},
};

#[tokio::test]
async fn tasks_are_listed_without_their_inputs_and_an_operator_cancels_one() {
    let echo = Agent::echo().await;
    let silent = Agent::with_steps(vec![Step::Hang]).await;
    let gate =
        console().section("tasks: {poll_interval: 1s}\n").agent("echo", &echo).agent("silent", &silent).start().await;
    let ended = task_path(&call_with_prefer(&gate, "echo", "respond-async").await);
    wait_for_status(&gate, &ended, "completed").await;
    let working = task_path(&call_with_prefer(&gate, "silent", "respond-async").await);
    let id_of = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    let (ended, working) = (id_of(&ended), id_of(&working));

    let list = page_as(&gate, "vera", "/console/tasks").await.text();
    assert!(list.find(&working).unwrap() < list.find(&ended).unwrap(), "the newest is first: {list}");
    assert!(list.contains("key:team-a") && list.contains("completed"), "{list}");
    let failed = page_as(&gate, "vera", "/console/tasks?state=failed").await.text();
    assert!(!failed.contains(&ended) && failed.contains("No task has this state"), "{failed}");
    let of_agent = page_as(&gate, "vera", "/console/tasks?agent=silent").await.text();
    assert!(of_agent.contains(&working) && !of_agent.contains(&ended), "{of_agent}");
    let one = page_as(&gate, "vera", &format!("/console/tasks/{ended}")).await.text();
    assert!(one.contains("completed") && !one.contains("Cancel the task"), "{one}");
    assert!(!one.contains("{&quot;text"), "the page has no result: {one}");

    let path = format!("/console/tasks/{working}/cancel");
    assert_eq!(send_form(&gate, "vera", &path, &[]).await.status, 403);
    let canceled = send_form(&gate, "olga", &path, &[]).await;
    assert_eq!(canceled.header("location"), Some(&*format!("/console/tasks/{working}?done=canceled")));
    let again = send_form(&gate, "olga", &path, &[]).await;
    assert_eq!(again.header("location"), Some(&*format!("/console/tasks/{working}?done=ended")));
    let log = page_as(&gate, "vera", "/console/audit?action=task_canceled").await.text();
    assert!(log.contains("key:olga") && log.contains(&working), "{log}");
    for absent in ["0123456789abcdef0123456789abcdef", "x", "%3Cb%3E"] {
        assert_eq!(page_as(&gate, "olga", &format!("/console/tasks/{absent}")).await.status, 404, "{absent}");
        assert_eq!(send_form(&gate, "olga", &format!("/console/tasks/{absent}/cancel"), &[]).await.status, 404);
    }
}

#[tokio::test]
async fn pages_of_what_is_off_name_the_setting() {
    let gate = gateway().start().await;
    let tasks = gate.admin_page("/console/tasks").await.text();
    assert!(tasks.contains("<code>tasks</code>"), "{tasks}");
    let audit = gate.admin_page("/console/audit").await.text();
    assert!(audit.contains("audit: {file: audit.log}"), "{audit}");
}

#[tokio::test]
async fn the_audit_page_shows_a_broken_line_and_the_verification_finds_it() {
    let gate = console().start().await;
    eventually("the start is recorded", async || gate.read_file("audit.log").contains("gateway_started")).await;
    let verified = send_form(&gate, "vera", "/console/audit/verify", &[]).await;
    assert_eq!(verified.header("location"), Some("/console/audit"), "{}", verified.text());
    let page = page_as(&gate, "vera", "/console/audit").await.text();
    assert!(page.contains("The chain is intact") && page.contains("gateway_started"), "{page}");
    let none = page_as(&gate, "vera", "/console/audit?actor=%3Cb%3E&outcome=refused").await.text();
    assert!(none.contains("No entry is of this kind") && none.contains("&lt;b&gt;") && !none.contains("<b>"), "{none}");

    let log = gate.read_file("audit.log");
    gate.write_file("audit.log", &format!("<i>no entry</i>\n{log}"));
    let page = page_as(&gate, "vera", "/console/audit").await.text();
    assert!(page.contains("gateway_started") && page.contains("is not an entry") && !page.contains("<i>"), "{page}");
    send_form(&gate, "vera", "/console/audit/verify", &[]).await;
    let page = page_as(&gate, "vera", "/console/audit").await.text();
    assert!(page.contains("The chain is broken") && page.contains("audit.log:1:"), "{page}");
}
