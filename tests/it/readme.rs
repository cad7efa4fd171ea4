//! The documentation is correct: the table of error codes is that of the code, and the first steps of the README work
//! as they are written.

use crate::support::{
    agent::{Agent, json_response},
    gateway::{Gateway, gatepost_command},
};
use gatepost::fault::FaultCode;
use serde_json::json;
use std::{fs, path::Path, process::Command};
use tempfile::TempDir;

fn read_page(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The fenced block of the README that follows a marker.
pub fn readme_block(marker: &str) -> String {
    let readme = read_page("README.md");
    let (_, rest) =
        readme.split_once(&format!("<!-- {marker} -->\n```")).unwrap_or_else(|| panic!("no marker {marker}"));
    let (block, _) = rest.split_once("```").unwrap();
    let (_language, text) = block.split_once('\n').unwrap();
    text.to_owned()
}

#[test]
fn r37_the_documented_table_of_error_codes_is_current() {
    let mut table = "| code | status | blame | retry | means |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for row in FaultCode::ALL.iter().map(|code| code.row()) {
        let statuses: Vec<String> = [row.status].iter().chain(row.other_statuses).map(ToString::to_string).collect();
        let retry = if row.retryable { "yes" } else { "no" };
        let (name, statuses, blame, title) = (row.name, statuses.join(", "), row.blame.as_str(), row.title);
        table.push_str(&format!("| `{name}` | {statuses} | {blame} | {retry} | {title} |\n"));
    }
    let page = read_page("docs/errors.md");
    let (_, rest) = page.split_once("<!-- failures -->\n").unwrap();
    let (documented, _) = rest.split_once("<!-- /failures -->").unwrap();
    assert!(documented == table, "the table of codes in docs/errors.md is stale; it should be:\n{table}");
}

#[tokio::test]
async fn the_first_steps_of_the_readme_work_as_they_are_written() {
    let greeter = Agent::scripted(|request| {
        let name = request.json()["name"].as_str().unwrap_or_default().to_owned();
        json_response(&json!({"greeting": format!("Hello, {name}!")}))
    })
    .await;
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("agents")).unwrap();
    let with_address = |text: String| text.replace("127.0.0.1:8000", &greeter.address.to_string());
    let document = with_address(readme_block("file: agents/greeter.yaml"));
    fs::write(folder.path().join("agents/greeter.yaml"), document).unwrap();
    let config = with_address(readme_block("file: gatepost.yaml"));
    assert!(config.lines().count() <= 25);
    fs::write(folder.path().join("gatepost.yaml"), config).unwrap();
    let run_block = readme_block("run");
    let documented: Vec<&str> = run_block.lines().collect();
    let new_key = gatepost_command().args(["key", "new", "--caller", "team-a"]).current_dir(folder.path()).output();
    let new_key = new_key.unwrap();
    let expiry = time::OffsetDateTime::now_utc() + time::Duration::days(90);
    let printed = String::from_utf8_lossy(&new_key.stderr).replace(folder.path().to_str().unwrap(), "…");
    let printed = printed.replace(&expiry.date().to_string(), "2027-02-21");
    assert_eq!([documented[0], documented[1]], ["$ gatepost key new --caller team-a", printed.trim_end()]);
    let key = String::from_utf8(new_key.stdout).unwrap().trim().to_owned();
    assert_eq!((documented[2].len(), key.get(..3), documented[2].get(..3)), (23, Some("gp_"), Some("gp_")));
    let check = gatepost_command().args(["check", "--strict"]).current_dir(folder.path()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&check.stdout), "gatepost.yaml: valid, 1 agent\n", "{check:?}");
    assert!(check.status.success(), "{check:?}");
    assert_eq!(documented[3..6], ["$ gatepost check", "gatepost.yaml: valid, 1 agent", "$ gatepost run"]);
    assert!(documented[6].starts_with("listening on http://") && documented[7].starts_with("admin on http://"));
    assert_eq!(documented[8], documented[7].replace("admin", "console") + "/console");
    let addresses = ["GATEPOST__LISTENERS__0__ADDRESS", "GATEPOST__ADMIN__ADDRESS"];
    let environment = addresses.map(|name| (name.to_owned(), "127.0.0.1:0".to_owned()));
    let gate =
        tokio::task::spawn_blocking(move || Gateway::spawn(folder, Vec::new(), &environment, &[])).await.unwrap();

    let calls = format!("{}{}", readme_block("calls"), readme_block("directory"));
    let calls = with_address(calls.replace("127.0.0.1:8080", &gate.address().to_string()));
    let mut lines = calls.lines();
    let mut count = 0;
    while let (Some(command), Some(documented)) = (lines.next(), lines.next()) {
        let command = command.strip_prefix("$ ").unwrap().to_owned();
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).env("KEY", &key);
        let output = tokio::task::spawn_blocking(move || shell.output()).await.unwrap().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        // Request ids differ from call to call, and are truncated in the README.
        let before_id = |text: &str| text.split("\"request_id\"").next().unwrap().to_owned();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(before_id(&stdout), before_id(documented), "{command}: {stderr}");
        count += 1;
    }
    assert_eq!((count, greeter.call_count()), (4, 1), "only the first call reaches the agent");
}
