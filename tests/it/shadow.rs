//! Rules in shadow mode: grants, denials, limits and contracts are judged and reported, and refuse nothing.

use crate::support::{
    agent::{Agent, Step, json_response, latch},
    eventually,
    gateway::{Gateway, gatepost_command, gateway, send},
};
use serde_json::{Value, json};

/// Calls the agent `echo` as a caller, and expects success.
async fn call_as(gate: &Gateway, caller: &str) {
    let call = gate.request("POST", "/agents/echo/invoke").header("x-api-key", gate.key(caller)).json(&json!({}));
    send(call).await.expect_ok();
}

async fn denials(gate: &Gateway, rule: &str, agent: &str) -> Option<f64> {
    gate.metric(&format!("gatepost_shadow_denials_total{{rule=\"{rule}\",agent=\"{agent}\"}}")).await
}

/// The member of the access log for each of so many calls.
async fn logged(gate: &Gateway, count: usize) -> Vec<Value> {
    gate.access_log(count).await.iter().map(|entry| entry["shadow_denials"].clone()).collect()
}

#[tokio::test]
async fn r3_grants_and_denials_in_shadow_mode_are_reported_and_refuse_nothing() {
    let echo = Agent::echo().await;
    let access = "access:\n  grants:\n    - {callers: ['*'], agents: ['*']}\n  shadow:\n    grants:\n      - {callers: ['key:team-a'], agents: ['echo']}\n";
    let gate = gateway().agent("echo", &echo).agent("other", &echo).access(access).caller("reader", &[]).start().await;
    call_as(&gate, "team-a").await;
    call_as(&gate, "reader").await;
    gate.invoke("other", &json!({})).await.expect_ok();
    assert_eq!(logged(&gate, 3).await, [json!(null), json!(["access"]), json!(["access"])]);
    assert_eq!(
        (denials(&gate, "access", "echo").await, denials(&gate, "access", "other").await),
        (Some(1.0), Some(1.0))
    );
    // Discovery is as the rules in force say, and a refused call is not judged.
    let list = send(gate.request("GET", "/agents").header("x-api-key", gate.key("reader"))).await.expect_ok();
    assert_eq!(list.as_array().unwrap().len(), 2);
    send(gate.request("POST", "/agents/echo/invoke").json(&json!({}))).await.expect_fault(401, "Unauthorized");
    assert_eq!(denials(&gate, "access", "echo").await, Some(1.0));

    // A list that is left out is the one in force: a denial is tried over the grants.
    let config = gate.read_file("gatepost.yaml");
    let with_denial = config.replace(
        "    grants:\n      - {callers: ['key:team-a'], agents: ['echo']}\n",
        "    denials:\n      - {callers: ['key:reader'], agents: ['*']}\n",
    );
    assert_ne!(with_denial, config);
    gate.write_file("gatepost.yaml", &with_denial);
    eventually("the reload", async || gate.stderr().contains("configuration reloaded")).await;
    call_as(&gate, "team-a").await;
    call_as(&gate, "reader").await;
    assert_eq!(denials(&gate, "access", "echo").await, Some(2.0));
    assert_eq!(logged(&gate, 7).await[5..], [json!(null), json!(["access"])]);
}

#[tokio::test]
async fn r5_rates_and_quotas_in_shadow_mode_have_tokens_of_their_own() {
    let echo = Agent::echo().await;
    let limits = "limits:\n  per_caller: 4/h\n  shadow: {per_caller: 2/h, quota: {per_day: 1}}\n";
    let gate = gateway().agent("echo", &echo).section(limits).caller("reader", &[]).start().await;
    for _ in 0..4 {
        call_as(&gate, "team-a").await;
    }
    // The limit in force refuses the fifth call, as without the section.
    gate.invoke("echo", &json!({})).await.expect_fault(429, "RateLimited");
    call_as(&gate, "reader").await;
    // A call that one limit would have refused takes no token of the others: the first call took the quota.
    let expected = [json!(null), json!(["quota"]), json!(["quota"]), json!(["quota"]), json!(null), json!(null)];
    assert_eq!(logged(&gate, 6).await, expected);
    assert_eq!(denials(&gate, "quota", "echo").await, Some(3.0));
    assert_eq!(gate.metric("gatepost_limited_requests_total{limit=\"caller\",agent=\"echo\"}").await, Some(1.0));
    assert_eq!(gate.metric("gatepost_limited_requests_total{limit=\"day\",agent=\"echo\"}").await, None);
}

#[tokio::test]
async fn r5_each_rate_in_shadow_mode_is_reported_by_its_name_and_a_reload_keeps_its_tokens() {
    let echo = Agent::echo().await;
    for (setting, rule) in
        [("per_caller", "per_caller"), ("per_caller_agent", "per_caller_agent"), ("per_agent", "per_agent")]
    {
        let limits = format!("limits:\n  shadow: {{{setting}: 2/h}}\n");
        let gate = gateway().agent("echo", &echo).section(&limits).caller("reader", &[]).start().await;
        call_as(&gate, "team-a").await;
        let config = gate.read_file("gatepost.yaml");
        gate.write_file("gatepost.yaml", &format!("{config}errors: {{format: problem}}\n"));
        eventually("the reload", async || gate.stderr().contains("configuration reloaded")).await;
        call_as(&gate, "team-a").await;
        call_as(&gate, "team-a").await;
        call_as(&gate, "reader").await;
        let of_reader = if setting == "per_agent" { json!([rule]) } else { json!(null) };
        assert_eq!(logged(&gate, 4).await, [json!(null), json!(null), json!([rule]), of_reader], "{setting}");
        // A batch is charged for each of its items.
        let expected = denials(&gate, rule, "echo").await.unwrap() + 3.0;
        let batch = gate.post("/agents/echo/invoke").json(&json!([{}, {}, {}]));
        send(batch).await.expect_ok();
        assert_eq!(denials(&gate, rule, "echo").await, Some(expected), "{setting}");
    }
}

#[tokio::test]
async fn r5_concurrency_in_shadow_mode_is_counted_until_the_calls_end() {
    for (setting, rule) in [("max_per_agent", "max_per_agent"), ("max_per_caller", "max_per_caller")] {
        let open = latch();
        let waits = open.clone();
        let slow =
            Agent::scripted(move |_| [vec![Step::WaitForLatch(waits.clone())], json_response(&json!({}))].concat())
                .await;
        let limits = format!("limits:\n  shadow: {{concurrency: {{{setting}: 1}}}}\n");
        let gate = gateway().agent("echo", &slow).section(&limits).start().await;
        let first = tokio::spawn(send(gate.post("/agents/echo/invoke").json(&json!({}))));
        eventually("the first call is with the agent", async || slow.call_count() == 1).await;
        let second = tokio::spawn(send(gate.post("/agents/echo/invoke").json(&json!({}))));
        eventually("the second call is with the agent too", async || slow.call_count() == 2).await;
        assert_eq!(denials(&gate, rule, "echo").await, Some(1.0), "{setting}");
        open.close();
        first.await.unwrap().expect_ok();
        second.await.unwrap().expect_ok();
        // A call has ended when its line is written, a moment after its caller has the response.
        logged(&gate, 2).await;
        gate.invoke("echo", &json!({})).await.expect_ok();
        assert_eq!(denials(&gate, rule, "echo").await, Some(1.0), "{setting}: the first call has ended");
        let reported = logged(&gate, 3).await.into_iter().filter(|member| *member == json!([rule])).count();
        assert_eq!(reported, 1, "{setting}");
    }
}

#[tokio::test]
async fn r32_r33_reported_contracts_count_as_rules_in_shadow_mode() {
    let echo = Agent::echo().await;
    let mut document = echo.document("echo");
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    document["operations"] = json!([{"name": "run", "inputs": schema, "outputs": schema}]);
    let gate = gateway().document(document).section("contract: {input: report, output: report}\n").start().await;
    gate.invoke("echo", &json!({"n": 1})).await.expect_ok();
    assert_eq!(denials(&gate, "input", "echo").await, None);
    gate.invoke("echo", &json!({"n": "no"})).await.expect_ok();
    assert_eq!(denials(&gate, "input", "echo").await, Some(1.0));
    assert!(denials(&gate, "output", "echo").await.is_some_and(|count| count >= 1.0));
}

#[tokio::test]
async fn r5_a_broken_rule_in_shadow_mode_is_refused_by_name_and_refuses_no_call() {
    let echo = Agent::echo().await;
    let gate = gateway()
        .agent("echo", &echo)
        .section("limits: {max_tracked_keys: 1, shadow: {per_caller: 1/h}}\n")
        .start()
        .await;
    // More callers than are tracked share a bucket, in shadow mode too.
    call_as(&gate, "team-a").await;
    call_as(&gate, "team-a").await;
    let config = gate.read_file("gatepost.yaml");
    for (broken, path) in [
        ("  shadow: {grants: [{callers: ['*']}]}\n", "access.shadow.grants[0]"),
        ("  shadow: {denials: [{agents: ['*']}]}\n", "access.shadow.denials[0]"),
        ("  shadow: {denials: [{callers: ['*'], agents: ['*'], mode: shadow}]}\n", "access.shadow.denials[0]"),
    ] {
        let text = config.replace("access:\n", &format!("access:\n{broken}"));
        std::fs::write(gate.folder().join("broken.yaml"), &text).unwrap();
        let output = gatepost_command().args(["check", "-c"]).arg(gate.folder().join("broken.yaml")).output().unwrap();
        let problems = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && problems.contains(path), "{problems}");
        gate.write_file("gatepost.yaml", &text);
        eventually("the reload is refused", async || gate.stderr().contains(path)).await;
        call_as(&gate, "team-a").await;
    }
    assert_eq!(denials(&gate, "per_caller", "echo").await, Some(4.0));
}
