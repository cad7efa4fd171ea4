//! Texts of documents that would steer a terminal or read otherwise than they are: pages and commands show them escaped.

use crate::support::{
    agent::Agent,
    gateway::{Gateway, gatepost_command, gateway, send},
};
use std::process::Output;

/// Begins a text in the other direction, ends a line, clears a terminal, and hides a space.
const DECEPTIVE: &str = "Pay\u{202e}lla\u{2028}\u{1b}[2J\u{9b}2J\u{200b}\r\u{7}end";
const HIDDEN: [char; 7] = ['\u{202e}', '\u{2028}', '\u{1b}', '\u{9b}', '\u{200b}', '\r', '\u{7}'];

#[track_caller]
fn assert_visible(place: &str, text: &str) {
    let hidden: Vec<char> = HIDDEN.into_iter().filter(|c| text.contains(*c)).collect();
    assert!(hidden.is_empty(), "{place}: {hidden:?} in {text:?}");
}

async fn run(gate: &Gateway, args: &[&str]) -> Output {
    let mut command = gatepost_command();
    command.current_dir(gate.folder()).args(args);
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

#[tokio::test]
async fn pages_and_commands_show_deceptive_characters_as_escapes() {
    let echo = Agent::echo().await;
    let mut document = echo.document("echo");
    document["name"] = DECEPTIVE.into();
    document["description"] = DECEPTIVE.into();
    document["tags"] = serde_json::json!([DECEPTIVE]);
    let mut rejected = echo.document("rejected");
    rejected[DECEPTIVE] = 1.into();
    rejected["endpoint"] = DECEPTIVE.into();
    let gate = gateway().document(document).document(rejected).section("directory: {caller_pages: true}\n");
    let gate = gate.start().await;
    for path in ["/docs", "/docs/echo"] {
        let page =
            send(gate.request("GET", path).header("x-api-key", gate.key("team-a")).header("accept", "text/html")).await;
        assert!(page.status == 200 && page.text().contains("Pay\\u202ella"), "{path}: {}", page.text());
        assert_visible(path, &page.text());
    }
    for path in
        ["/agents", "/sources", "/readyz", "/console", "/console/agents", "/console/agents/echo", "/console/sources"]
    {
        let page = gate.admin_page(path).await;
        assert_visible(path, &page.text());
    }
    let url = format!("http://{}", gate.admin_address);
    for args in [
        &["explain", "--url", &url, "--as", "key:team-a", "POST", "/agents/echo/invoke", "-d", "{}"][..],
        &["explain", "--url", &url, "--json", "--as", "key:team-a", "POST", "/agents/echo/invoke"],
        &["check"],
        &["doctor", "--offline"],
        &["doctor", "--offline", "--json"],
        &["key", "list"],
        &["resolve", DECEPTIVE.split('\u{1b}').next().unwrap()],
    ] {
        let output = run(&gate, args).await;
        assert_visible(&format!("{args:?}"), &String::from_utf8_lossy(&output.stdout));
        assert_visible(&format!("{args:?}"), &String::from_utf8_lossy(&output.stderr));
    }
    assert_visible("the log", &gate.stderr());
}
