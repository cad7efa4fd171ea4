//! The commands `gatepost resolve` and `gatepost call`.

use super::*;
use crate::support::{
    agent::{Agent, Step, http_response, latch, write},
    closed_port::ClosedPort,
    gateway::gatepost_command,
    servers::EchoServer,
};
use std::{io::Write as _, path::Path, process::Stdio};
use tempfile::TempDir;

/// Runs a command in `folder`; returns its exit code, standard output and standard error.
async fn run(folder: &Path, args: &[&str], stdin: &str) -> (i32, String, String) {
    let mut command = gatepost_command();
    command.current_dir(folder).args(args).env("SOME_KEY", "k3y").stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that does not read its input may have exited already.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// A site, and a folder with a configuration that trusts its certificate.
async fn start_site() -> (Site, TempDir) {
    let authority = CertificateAuthority::new("Sites");
    let site = Site::start(&authority).await;
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("sites.pem"), authority.pem()).unwrap();
    let config = "listeners: [{address: '127.0.0.1:0'}]\nnetwork: {ca: sites.pem}\nagents: {sources: [agents.json], defaults: {tls: {ca: sites.pem}}}\n";
    std::fs::write(folder.path().join("gatepost.yaml"), config).unwrap();
    (site, folder)
}

const CONFIG_ARGS: [&str; 3] = ["-c", "gatepost.yaml", "--allow-loopback"];

#[tokio::test]
async fn r64_a_name_is_resolved_called_and_printed() {
    let (site, folder) = start_site().await;
    site.json("/p/agent.json", json!({"name": "p", "version": "1.0.0", "endpoint": "/agent/p"}));
    let name = site.agent_uri("/p/plan?city=Rio");
    let (code, stdout, stderr) = run(folder.path(), &[&["resolve", &name], &CONFIG_ARGS[..]].concat(), "").await;
    let found: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &found["endpoint"]), (0, &json!(site.url("/agent/p/plan?city=Rio"))), "{stderr}");
    let (code, stdout, _) = run(folder.path(), &[&["call", &name], &CONFIG_ARGS[..]].concat(), "").await;
    let got: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &got["method"], &got["target"]), (0, &json!("GET"), &json!("/agent/p/plan?city=Rio")));
    let args = ["call", &site.agent_uri("/p"), "--data", "-", "--key", "env:SOME_KEY", "--agent-version", "1.x", "-v"];
    let (code, stdout, stderr) = run(folder.path(), &[&args, &CONFIG_ARGS[..]].concat(), r#"{"a":1}"#).await;
    let got: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &got["method"], &got["body"]), (0, &json!("POST"), &json!({"a": 1})));
    assert_eq!((&got["key"], &got["version"]), (&json!("k3y"), &json!("1.0.0")));
    assert!(stderr.contains("agent.json") && !stderr.contains("k3y"), "{stderr}");
    // Without --allow-loopback, a name does not resolve to this machine.
    let (code, stdout, _) = run(folder.path(), &["resolve", &name, "-c", "gatepost.yaml"], "").await;
    assert_eq!((code, stdout.as_str()), (1, ""));
}

#[tokio::test]
async fn a_plain_url_is_called_without_a_configuration() {
    let folder = TempDir::new().unwrap();
    let agent = Agent::scripted(|got| {
        let echo = format!(
            "{} {} {}",
            got.head.lines().next().unwrap(),
            got.header("x-operation").unwrap_or("-"),
            got.header("x-more").unwrap_or("-")
        );
        http_response("200 OK", "text/plain", &echo)
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
async fn r51_an_explicit_socket_and_a_configured_local_runtime_are_called() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = TempDir::new().unwrap();
    let agents = folder.path().join("agents");
    std::fs::create_dir(&agents).unwrap();
    let _agent = EchoServer::start_on_unix_socket(&agents.join("echo.sock"));
    for path in [&agents, &agents.join("echo.sock")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    std::fs::write(agents.join("echo.json"), "{}").unwrap();
    let name = format!("agent+unix://{}#/x", agents.join("echo.sock").display());
    let (code, stdout, stderr) = run(folder.path(), &["call", &name, "--data", r#"{"a":1}"#], "").await;
    assert_eq!((code, stdout.as_str()), (0, "{\"a\":1}\n"), "{stderr}");
    let config =
        "listeners: [{address: '127.0.0.1:0'}]\nlocal_runtimes: {folder: agents}\nagents: {sources: [agents.json]}\n";
    std::fs::write(folder.path().join("gatepost.yaml"), config).unwrap();
    let call = ["call", "agent+local://echo", "-c", "gatepost.yaml", "--data", r#"{"a":2}"#];
    let (code, stdout, stderr) = run(folder.path(), &call, "").await;
    assert_eq!((code, stdout.as_str()), (0, "{\"a\":2}\n"), "{stderr}");
    assert_eq!(run(folder.path(), &["call", "agent+local://echo"], "").await.0, 1);
}

#[tokio::test]
async fn a_stream_is_printed_as_it_arrives() {
    use std::io::{BufRead as _, BufReader};
    let second_event = latch();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    let steps = vec![
        write(format!("{head}9\r\ndata: 1\n\n\r\n")),
        Step::WaitForLatch(second_event.clone()),
        write("9\r\ndata: 2\n\n\r\n0\r\n\r\n"),
    ];
    let agent = Agent::with_steps(steps).await;
    let url = format!("http://{}/", agent.address);
    let mut child = gatepost_command().args(["call", &url, "--stream"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (first, mut lines) =
        tokio::task::spawn_blocking(move || (lines.next().unwrap().unwrap(), lines)).await.unwrap();
    assert_eq!(first, "data: 1", "the first event is printed before the second arrives");
    second_event.close();
    let rest =
        tokio::task::spawn_blocking(move || lines.by_ref().map_while(Result::ok).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(rest, ["", "data: 2", ""]);
    assert!(child.wait().unwrap().success());
}

#[tokio::test]
async fn exit_codes_distinguish_failures_from_usage_errors() {
    let folder = TempDir::new().unwrap();
    let failing =
        Agent::with_steps(http_response("500 Internal Server Error", "application/json", r#"{"error":"x"}"#)).await;
    let dying =
        Agent::with_steps(vec![write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{\"a\""), Step::Reset]).await;
    let closed = ClosedPort::new();
    let (failing, dying) = (format!("http://{}/", failing.address), format!("http://{}/", dying.address));
    let unreachable = format!("http://{}/", closed.address);
    let cases: Vec<(i32, Vec<&str>)> = vec![
        (1, vec!["call", &failing]),
        (1, vec!["call", &dying]),
        (1, vec!["call", &unreachable]),
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
        let (exit_code, stdout, stderr) = run(folder.path(), &args, "").await;
        assert_eq!(exit_code, code, "{args:?}: {stdout} {stderr}");
        assert!(!stderr.is_empty() && !stderr.contains("panicked"), "{args:?}: {stderr}");
        assert!(!stderr.contains("hunter2") || args.contains(&"--key"), "{stderr}");
    }
    let (_, stdout, stderr) = run(folder.path(), &["call", &failing], "").await;
    assert_eq!(
        (stdout.as_str(), stderr.contains("500")),
        ("{\"error\":\"x\"}\n", true),
        "the agent's own error is printed"
    );
}
