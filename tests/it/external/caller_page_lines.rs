//! The lines of a page for callers, run by curl, Python and Node.js against the gateway.

use crate::support::{
    agent::Agent,
    gateway::{gateway, send},
};
use serde_json::{Value, json};
use std::process::Command;

/// Returns the blocks of code of a page, as a browser shows them.
fn code_blocks(page: &str) -> Vec<String> {
    let unescape =
        |html: &str| html.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
    let blocks = page.split("<pre tabindex=\"0\"><code>").skip(1);
    blocks.map(|block| unescape(block.split("</code>").next().unwrap())).collect()
}

#[tokio::test]
async fn the_lines_of_a_page_call_the_agent_with_the_very_example_of_a_hostile_publisher() {
    let echo = Agent::echo().await;
    let text = "'\"`\\ $(touch pwned) ${HOME} !! %s \n\r\t\0</script>\u{2028}\u{202e}\u{7f}\u{85} é 你 😀 \\u0041";
    let input = json!({
        "text": text,
        "__proto__": {"a": [true, false, null, 1.5, -3, 1e20]},
        "constructor": {"'\"": text},
        "list": [[], {}, [[text]], "x".repeat(200)],
    });
    let mut document = echo.document("echo");
    document["examples"] = json!([{"input": input}]);
    let gate = gateway().section("directory: {caller_pages: true}\n").document(document).start().await;
    let key = gate.key("team-a").to_owned();
    let page = send(gate.request("GET", "/docs/echo").header("x-api-key", &key)).await.text();
    let blocks = code_blocks(&page);
    let folder = tempfile::TempDir::new().unwrap();
    let programs: [(&str, &[&str]); 3] =
        [("sh", &["-c"]), ("python3", &["-c"]), ("node", &["--input-type=module", "-e"])];
    for ((program, arguments), lines) in programs.into_iter().zip(&blocks) {
        let mut command = Command::new(program);
        command.args(arguments).arg(lines).env("KEY", &key).current_dir(&folder);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{program}: {errors}\n{lines}");
        let answer: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|why| panic!("{program}: {why}: {} {errors}", String::from_utf8_lossy(&output.stdout)));
        assert_eq!(answer["echo"], input, "{program}: {lines}");
    }
    assert_eq!(echo.call_count(), 3);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "no command of the example ran");
}
