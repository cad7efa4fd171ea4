//! `gatepost resolve` and `gatepost call`, run as people run them.

use super::*;
use crate::support::{
    agent::{Agent, Do, answer, latch, write},
    gateway::command,
    served::Served,
};
use std::{io::Write as _, path::Path, process::Stdio};
use tempfile::TempDir;

/// Runs a command in `folder`; its exit code and what it said.
async fn run(folder: &Path, args: &[&str], stdin: &str) -> (i32, String, String) {
    let mut command = command();
    command.current_dir(folder).args(args).env("SOME_KEY", "k3y").stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that does not read it may be gone already.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A site, and a folder with a configuration that believes it.
async fn site() -> (Site, TempDir) {
    let authority = Authority::new("Sites");
    let site = Site::start(&authority).await;
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("sites.pem"), authority.pem()).unwrap();
    let config = "listen: [{address: '127.0.0.1:0'}]\nnetwork: {ca: sites.pem}\nagents: {from: [agents.json], defaults: {tls: {ca: sites.pem}}}\n";
    std::fs::write(folder.path().join("gatepost.yaml"), config).unwrap();
    (site, folder)
}

const TRIAL: [&str; 3] = ["-c", "gatepost.yaml", "--allow-loopback"];

#[tokio::test]
async fn r64_a_name_is_resolved_called_and_printed() {
    let (site, folder) = site().await;
    site.json("/p/agent.json", json!({"name": "p", "version": "1.0.0", "endpoint": "/agent/p"}));
    let name = site.name("/p/plan?city=Rio");
    let (code, said, wrong) = run(folder.path(), &[&["resolve", &name], &TRIAL[..]].concat(), "").await;
    let found: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &found["endpoint"]), (0, &json!(site.url("/agent/p/plan?city=Rio"))), "{wrong}");
    let (code, said, _) = run(folder.path(), &[&["call", &name], &TRIAL[..]].concat(), "").await;
    let got: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &got["method"], &got["target"]), (0, &json!("GET"), &json!("/agent/p/plan?city=Rio")));
    let args = ["call", &site.name("/p"), "--data", "-", "--key", "env:SOME_KEY", "--agent-version", "1.x", "-v"];
    let (code, said, wrong) = run(folder.path(), &[&args, &TRIAL[..]].concat(), r#"{"a":1}"#).await;
    let got: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &got["method"], &got["body"]), (0, &json!("POST"), &json!({"a": 1})));
    assert_eq!((&got["key"], &got["version"]), (&json!("k3y"), &json!("1.0.0")));
    assert!(wrong.contains("agent.json") && !wrong.contains("k3y"), "{wrong}");
    // Without the word for it, a name does not lead to this machine.
    let (code, said, _) = run(folder.path(), &["resolve", &name, "-c", "gatepost.yaml"], "").await;
    assert_eq!((code, said.as_str()), (1, ""));
}

#[tokio::test]
async fn a_plain_url_is_called_without_any_configuration() {
    let folder = TempDir::new().unwrap();
    let agent = Agent::scripted(|got| {
        let seen = format!(
            "{} {} {}",
            got.head.lines().next().unwrap(),
            got.header("x-operation").unwrap_or("-"),
            got.header("x-more").unwrap_or("-")
        );
        answer("200 OK", "text/plain", &seen)
    })
    .await;
    let url = format!("http://{}/x?y=1", agent.address);
    std::fs::write(folder.path().join("in.json"), "{}").unwrap();
    let args = ["call", &url, "--data", "@in.json", "--operation", "sing", "-H", "X-More: of it"];
    assert_eq!(run(folder.path(), &args, "").await, (0, "POST /x?y=1 HTTP/1.1 sing of it\n".into(), String::new()));
    let name = format!("agent+http://{}/x", agent.address);
    assert_eq!(run(folder.path(), &["call", &name], "").await.1, "GET /x HTTP/1.1 - -\n");
}

#[tokio::test]
async fn r51_a_socket_that_is_written_out_and_a_runtime_of_the_configuration_are_called() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = TempDir::new().unwrap();
    let place = folder.path().join("agents");
    std::fs::create_dir(&place).unwrap();
    let _agent = Served::unix(&place.join("echo.sock"));
    for private in [&place, &place.join("echo.sock")] {
        std::fs::set_permissions(private, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    std::fs::write(place.join("echo.json"), "{}").unwrap();
    let name = format!("agent+unix://{}#/x", place.join("echo.sock").display());
    let (code, said, wrong) = run(folder.path(), &["call", &name, "--data", r#"{"a":1}"#], "").await;
    assert_eq!((code, said.as_str()), (0, "{\"a\":1}\n"), "{wrong}");
    let config = "listen: [{address: '127.0.0.1:0'}]\nlocal: {folder: agents}\nagents: {from: [agents.json]}\n";
    std::fs::write(folder.path().join("gatepost.yaml"), config).unwrap();
    let call = ["call", "agent+local://echo", "-c", "gatepost.yaml", "--data", r#"{"a":2}"#];
    let (code, said, wrong) = run(folder.path(), &call, "").await;
    assert_eq!((code, said.as_str()), (0, "{\"a\":2}\n"), "{wrong}");
    assert_eq!(run(folder.path(), &["call", "agent+local://echo"], "").await.0, 1);
}

#[tokio::test]
async fn a_stream_is_printed_as_it_comes() {
    use std::io::{BufRead as _, BufReader};
    let goes_on = latch();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let steps = vec![
        write(format!("{head}9\r\ndata: 1\n\n\r\n")),
        Do::Until(goes_on.clone()),
        write("9\r\ndata: 2\n\n\r\n0\r\n\r\n"),
    ];
    let agent = Agent::doing(steps).await;
    let url = format!("http://{}/", agent.address);
    let mut child = command().args(["call", &url, "--stream"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (first, mut lines) =
        tokio::task::spawn_blocking(move || (lines.next().unwrap().unwrap(), lines)).await.unwrap();
    assert_eq!(first, "data: 1", "the first event is there while the second is not");
    goes_on.close();
    let rest =
        tokio::task::spawn_blocking(move || lines.by_ref().map_while(Result::ok).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(rest, ["", "data: 2", ""]);
    assert!(child.wait().unwrap().success());
}

#[tokio::test]
async fn exit_codes_tell_a_failure_from_a_command_that_is_wrong() {
    let folder = TempDir::new().unwrap();
    let failing = Agent::doing(answer("500 Internal Server Error", "application/json", r#"{"error":"x"}"#)).await;
    let dying = Agent::doing(vec![write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{\"a\""), Do::Reset]).await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (failing, dying) = (format!("http://{}/", failing.address), format!("http://{}/", dying.address));
    let nobody = format!("http://127.0.0.1:{closed}/");
    let cases: Vec<(i32, Vec<&str>)> = vec![
        (1, vec!["call", &failing]),
        (1, vec!["call", &dying]),
        (1, vec!["call", &nobody]),
        (1, vec!["call", "http://a.example/"]),
        (1, vec!["resolve", "agent://169.254.169.254/x"]),
        (1, vec!["resolve", "agent://did:key:z6Mk"]),
        (2, vec!["resolve", "http://a.example"]),
        (2, vec!["resolve", "agent://me@a.example"]),
        (2, vec!["resolve", "agent+pigeon://a.example"]),
        (2, vec!["resolve", "agent://a.example", "-c", "nowhere.yaml"]),
        (2, vec!["resolve"]),
        (2, vec!["call", &failing, "--data", "{"]),
        (2, vec!["call", &failing, "--data", "@nowhere"]),
        (2, vec!["call", &failing, "--header", "hunter2"]),
        (2, vec!["call", &failing, "--key", "hunter2"]),
        (2, vec!["call", &failing, "--timeout", "soon"]),
    ];
    for (code, args) in cases {
        let (ended, said, wrong) = run(folder.path(), &args, "").await;
        assert_eq!(ended, code, "{args:?}: {said} {wrong}");
        assert!(!wrong.is_empty() && !wrong.contains("panicked"), "{args:?}: {wrong}");
        assert!(!wrong.contains("hunter2") || args.contains(&"--key"), "{wrong}");
    }
    let (_, said, wrong) = run(folder.path(), &["call", &failing], "").await;
    assert_eq!(
        (said.as_str(), wrong.contains("500")),
        ("{\"error\":\"x\"}\n", true),
        "the agent's own words are shown"
    );
}
