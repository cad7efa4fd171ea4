//! The README keeps its word: its table of failures is the code's, and its first steps work as they stand there.

use crate::support::{
    agent::{Agent, json_answer},
    gateway::{Gate, new_key},
};
use gatepost::fault::FaultCode;
use serde_json::json;
use std::{fs, path::Path, process::Command};
use tempfile::TempDir;

fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap()
}

/// The fenced block that follows a marker.
fn block(marker: &str) -> String {
    let readme = readme();
    let after = readme.split_once(&format!("<!-- {marker} -->\n```")).unwrap_or_else(|| panic!("no {marker}")).1;
    let (text, _) = after.split_once("```").unwrap();
    text.split_once('\n').unwrap().1.to_owned()
}

#[test]
fn r37_the_table_of_failures_is_the_codes() {
    let mut table = "| code | status | blame | retry | means |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for row in FaultCode::ALL.iter().map(|code| code.row()) {
        let statuses: Vec<String> = [row.status].iter().chain(row.other_statuses).map(ToString::to_string).collect();
        let retry = if row.retryable { "yes" } else { "no" };
        let (name, statuses, blame, title) = (row.name, statuses.join(", "), row.blame.as_str(), row.title);
        table.push_str(&format!("| `{name}` | {statuses} | {blame} | {retry} | {title} |\n"));
    }
    let readme = readme();
    let (_, after) = readme.split_once("<!-- failures -->\n").unwrap();
    let (kept, _) = after.split_once("<!-- /failures -->").unwrap();
    assert!(kept == table, "the README's table of failures is stale; it should be:\n{table}");
}

#[tokio::test]
async fn the_first_steps_work_as_they_are_written() {
    let greeter = Agent::scripted(|got| {
        let name = got.json()["name"].as_str().unwrap_or_default().to_owned();
        json_answer(&json!({"greeting": format!("Hello, {name}!")}))
    })
    .await;
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("agents")).unwrap();
    let document = block("file: agents/greeter.yaml").replace("127.0.0.1:8000", &greeter.address.to_string());
    fs::write(folder.path().join("agents/greeter.yaml"), document).unwrap();
    let config = block("file: gatepost.yaml");
    assert!(config.lines().count() <= 25);
    fs::write(folder.path().join("gatepost.yaml"), config).unwrap();
    let key = new_key(folder.path(), "team-a", &[]);
    let free = ["GATEPOST__LISTEN__0__ADDRESS", "GATEPOST__ADMIN__ADDRESS"];
    let environment = free.map(|name| (name.to_owned(), "127.0.0.1:0".to_owned()));
    let gate = tokio::task::spawn_blocking(move || Gate::spawn(folder, Vec::new(), &environment, &[])).await.unwrap();

    let calls = format!("{}{}", block("calls"), block("directory"));
    let calls = calls.replace("127.0.0.1:8080", &gate.address().to_string());
    let mut lines = calls.lines();
    let mut count = 0;
    while let (Some(call), Some(answer)) = (lines.next(), lines.next()) {
        let call = call.strip_prefix("$ ").unwrap().to_owned();
        let mut shell = Command::new("sh");
        shell.args(["-c", &call]).env("KEY", &key);
        let output = tokio::task::spawn_blocking(move || shell.output()).await.unwrap().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        // Ids differ from call to call, and are cut in the README.
        let (said, answer) = (said.split("\"request_id\"").next(), answer.split("\"request_id\"").next());
        assert_eq!(said, answer, "{call}: {}", String::from_utf8_lossy(&output.stderr));
        count += 1;
    }
    assert_eq!((count, greeter.calls()), (4, 1), "the second one never reached the agent");
}
