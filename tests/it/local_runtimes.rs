//! Local runtimes: a runtime in the private folder or registered over the admin listener is called; files that another
//! user of the machine could have placed there are rejected.

use crate::support::{
    agent::{Step, write},
    eventually,
    gateway::{Gateway, GatewayBuilder, gateway, send},
    gateway_response::GatewayResponse,
};
use serde_json::{Value, json};
use std::{
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixListener,
    task::JoinHandle,
};

/// A runtime on a unix socket that answers each connection with these steps; stops when dropped.
struct Runtime(JoinHandle<()>, PathBuf);

impl Runtime {
    fn new(socket: &Path, steps: Vec<Step>) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        chmod(socket, 0o700);
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let steps = steps.clone();
                tokio::spawn(async move {
                    let mut got = [0; 64 << 10];
                    if stream.read(&mut got).await.is_err() {
                        return;
                    }
                    for step in steps {
                        match step {
                            Step::Write(bytes) => drop(stream.write_all(&bytes).await),
                            Step::Hang => drop(stream.read(&mut got).await),
                            _ => return,
                        }
                    }
                });
            }
        });
        Self(task, socket.to_owned())
    }

    fn responding(socket: &Path, body: &Value) -> Self {
        let text = body.to_string();
        let head = format!(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            text.len()
        );
        Self::new(socket, vec![write(format!("{head}{text}"))])
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.0.abort();
        let _ = std::fs::remove_file(&self.1);
    }
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn document(id: &str) -> Value {
    json!({"id": id, "name": id, "endpoint": format!("agent+local://{id}"), "authentication": {"type": "api_key"}})
}

/// A private folder, and a gateway with the documents of these runtimes.
fn with_private_folder(names: &[&str]) -> (TempDir, GatewayBuilder) {
    let folder = TempDir::new().unwrap();
    chmod(folder.path(), 0o700);
    let section = format!("local_runtimes:\n  folder: {}\n", folder.path().display());
    let build = names.iter().fold(gateway().section(&section), |build, name| build.document(document(name)));
    (folder, build)
}

fn write_descriptor(folder: &Path, name: &str, text: &str) {
    let path = folder.join(format!("{name}.json"));
    std::fs::write(&path, text).unwrap();
    chmod(&path, 0o600);
}

async fn assert_unavailable(gate: &Gateway, name: &str) {
    let answer = gate.invoke(name, &json!({})).await;
    answer.expect_fault(503, "AgentUnavailable");
    answer.assert_hides(&["/tmp", ".sock", ".json", "owner"]);
}

#[tokio::test]
async fn r51_a_runtime_with_a_socket_and_a_descriptor_is_called_until_either_is_removed() {
    let (folder, build) = with_private_folder(&["worker"]);
    let gate = build.start().await;
    assert_unavailable(&gate, "worker").await;
    write_descriptor(folder.path(), "worker", "{}");
    assert_unavailable(&gate, "worker").await;
    let runtime = Runtime::responding(&folder.path().join("worker.sock"), &json!({"from": 1}));
    assert_eq!(gate.invoke("worker", &json!({})).await.expect_ok(), json!({"from": 1}));
    // The descriptor names another socket between two calls.
    let other = Runtime::responding(&folder.path().join("second.sock"), &json!({"from": 2}));
    write_descriptor(folder.path(), "worker", r#"{"socket": "second.sock", "path": "/run?x=1"}"#);
    assert_eq!(gate.invoke("worker", &json!({})).await.expect_ok(), json!({"from": 2}));
    drop(other);
    assert_unavailable(&gate, "worker").await;
    write_descriptor(folder.path(), "worker", "{}");
    assert_eq!(gate.invoke("worker", &json!({})).await.expect_ok(), json!({"from": 1}));
    // A socket without a listener.
    let dead = folder.path().join("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    chmod(&dead, 0o700);
    write_descriptor(folder.path(), "worker", r#"{"socket": "dead.sock"}"#);
    assert_unavailable(&gate, "worker").await;
    drop(runtime);
}

#[tokio::test]
async fn r51_files_that_other_users_could_have_placed_are_rejected() {
    let (folder, build) = with_private_folder(&["worker"]);
    let at = folder.path();
    let gate = build.start().await;
    let _runtime = Runtime::responding(&at.join("worker.sock"), &json!({}));
    let elsewhere = TempDir::new().unwrap();
    let _outside = Runtime::responding(&elsewhere.path().join("outside.sock"), &json!({"outside": true}));
    symlink(elsewhere.path().join("outside.sock"), at.join("link.sock")).unwrap();
    std::fs::write(at.join("plain.sock"), "").unwrap();
    let long = format!("{{\"path\": \"/{}\"}}", "x".repeat(70 << 10));
    for text in [
        "",
        "[]",
        "nonsense",
        "{\"socket\": 1}",
        "{\"unknown\": 1}",
        "{\"path\": \"run\"}",
        "{\"path\": \"/a b\"}",
        "{\"socket\": \"../outside.sock\"}",
        "{\"socket\": \"/run/docker.sock\"}",
        "{\"socket\": \"..\"}",
        "{\"socket\": \"\"}",
        "{\"socket\": \"link.sock\"}",
        "{\"socket\": \"plain.sock\"}",
        "{\"socket\": \"none.sock\"}",
        &long,
    ] {
        write_descriptor(at, "worker", text);
        assert_unavailable(&gate, "worker").await;
    }
    write_descriptor(at, "worker", "{}");
    gate.invoke("worker", &json!({})).await.expect_ok();
    for (path, unsafe_mode, safe_mode) in
        [(at.to_owned(), 0o770, 0o700), (at.join("worker.json"), 0o606, 0o600), (at.join("worker.sock"), 0o777, 0o755)]
    {
        chmod(&path, unsafe_mode);
        assert_unavailable(&gate, "worker").await;
        chmod(&path, safe_mode);
        gate.invoke("worker", &json!({})).await.expect_ok();
    }
    // A link instead of the descriptor.
    std::fs::rename(at.join("worker.json"), elsewhere.path().join("worker.json")).unwrap();
    symlink(elsewhere.path().join("worker.json"), at.join("worker.json")).unwrap();
    assert_unavailable(&gate, "worker").await;
    let reason = "is writable by other users";
    eventually("the access log has the reason", async || {
        gate.access_log(10).await.iter().any(|line| line.to_string().contains(reason))
    })
    .await;
}

#[tokio::test]
async fn r51_a_runtime_of_another_owner_is_rejected_and_check_reports_an_unsafe_folder() {
    let folder = TempDir::new().unwrap();
    chmod(folder.path(), 0o700);
    let _runtime = Runtime::responding(&folder.path().join("worker.sock"), &json!({}));
    write_descriptor(folder.path(), "worker", "{}");
    let section = format!("local_runtimes:\n  folder: {}\n  owner_uid: 4242\n", folder.path().display());
    let gate = gateway().section(&section).document(document("worker")).start().await;
    assert_unavailable(&gate, "worker").await;
    chmod(folder.path(), 0o777);
    let text = format!(
        "listeners:\n  - address: 127.0.0.1:0\nagents:\n  sources: [agents.json]\nlocal_runtimes:\n  folder: {}\n  max_lease: 48h\n",
        folder.path().display()
    );
    let config_folder = TempDir::new().unwrap();
    std::fs::write(config_folder.path().join("agents.json"), "[]").unwrap();
    std::fs::write(config_folder.path().join("gatepost.yaml"), text).unwrap();
    let output = crate::support::gateway::gatepost_command()
        .arg("check")
        .arg("-c")
        .arg(config_folder.path().join("gatepost.yaml"))
        .output();
    let output = output.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && stderr.contains("local_runtimes.folder") && stderr.contains("max_lease"),
        "{stderr}"
    );
}

#[tokio::test]
async fn r51_a_local_runtime_that_disconnects_hangs_or_sends_garbage_fails_like_any_agent() {
    let (folder, build) = with_private_folder(&["garbage", "cut", "silent", "failing", "closing"]);
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
    let failing = "HTTP/1.1 500 Oh\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n{\"error\":{\"message\":\"/srv/app at db:543\"}}";
    let mut runtimes = Vec::new();
    for (name, steps) in [
        ("garbage", vec![write("nonsense\r\n\r\n")]),
        ("cut", vec![write(format!("{head}Content-Length: 100\r\n\r\n{{\"a\":"))]),
        ("silent", vec![Step::Hang]),
        ("failing", vec![write(failing)]),
        ("closing", vec![]),
    ] {
        write_descriptor(folder.path(), name, "{}");
        runtimes.push(Runtime::new(&folder.path().join(format!("{name}.sock")), steps));
    }
    let gate = build.start().await;
    for (name, status) in [("garbage", 502), ("cut", 502), ("failing", 500), ("closing", 502)] {
        let answer = gate.invoke(name, &json!({})).await;
        answer.expect_fault(status, "AgentError");
        answer.assert_hides(&["/srv", "db:543", ".sock"]);
    }
    let request = gate.post("/agents/silent/invoke").header("x-request-timeout", "300ms");
    send(request.json(&json!({}))).await.expect_fault(504, "Timeout");
}

async fn admin(gate: &Gateway, method: &str, path: &str, body: &Value) -> GatewayResponse {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{}{path}", gate.admin_address);
    send(client.request(method.parse().unwrap(), url).json(body)).await
}

#[tokio::test]
async fn r51_a_runtime_registers_over_the_admin_listener_and_expires_unless_renewed() {
    let (_folder, build) = with_private_folder(&["worker"]);
    let gate = build.start().await;
    let runtime_folder = TempDir::new().unwrap();
    chmod(runtime_folder.path(), 0o700);
    let socket = runtime_folder.path().join("worker.sock");
    let _runtime = Runtime::responding(&socket, &json!({"here": true}));
    let registration = |ttl: &str| json!({"socket": socket, "path": "/x", "ttl": ttl});
    let created = admin(&gate, "PUT", "/local/worker", &registration("2s")).await;
    assert_eq!((created.status, created.json()), (201, json!({"name": "worker", "expires_in": 2})));
    assert_eq!(gate.invoke("worker", &json!({})).await.expect_ok(), json!({"here": true}));
    assert_eq!(admin(&gate, "PUT", "/local/worker", &registration("1s")).await.status, 200, "a renewal");
    eventually("the lease ends", async || gate.invoke("worker", &json!({})).await.status == 503).await;
    admin(&gate, "PUT", "/local/worker", &registration("1m")).await;
    gate.invoke("worker", &json!({})).await.expect_ok();
    // The socket is checked again at each call.
    chmod(&socket, 0o777);
    assert_unavailable(&gate, "worker").await;
    chmod(&socket, 0o700);
    assert_eq!(admin(&gate, "DELETE", "/local/worker", &Value::Null).await.status, 204);
    assert_eq!(admin(&gate, "DELETE", "/local/worker", &Value::Null).await.status, 404);
    assert_unavailable(&gate, "worker").await;
    chmod(runtime_folder.path(), 0o777);
    assert_eq!(
        admin(&gate, "PUT", "/local/worker", &registration("1m")).await.status,
        400,
        "its folder is writable by everybody"
    );
    chmod(runtime_folder.path(), 0o700);
    for body in [
        json!({"socket": "worker.sock"}),
        json!({"socket": "/run/../worker.sock"}),
        json!({"socket": runtime_folder.path().join("none.sock")}),
        json!({"socket": "/etc/passwd"}),
        json!({"socket": socket, "path": "x"}),
        json!({"socket": socket, "ttl": "2h"}),
        json!({"socket": socket, "ttl": "10ms"}),
        json!({"socket": socket, "more": 1}),
        json!([]),
    ] {
        let refused = admin(&gate, "PUT", "/local/worker", &body).await;
        assert_eq!(refused.status, 400, "{body}: {}", refused.text());
    }
    assert_eq!(admin(&gate, "PUT", "/local/a%20b", &registration("1m")).await.status, 400);
    assert_eq!(admin(&gate, "PUT", "/local/worker", &json!({"socket": "x".repeat(20 << 10)})).await.status, 413);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let page = client.put(format!("http://{}/local/worker", gate.admin_address)).header("origin", "http://localhost");
    assert_eq!(send(page.json(&registration("1m"))).await.status, 403, "no web page may register a runtime");
}

#[tokio::test]
async fn r51_without_the_section_no_runtime_registers_and_no_local_agent_is_served() {
    let gate = gateway().document(document("worker")).start().await;
    gate.invoke("worker", &json!({})).await.expect_fault(404, "NotFound");
    assert_eq!(admin(&gate, "PUT", "/local/worker", &json!({"socket": "/run/x.sock"})).await.status, 404);
    let rejected = gate.admin_page("/agents").await.json()["rejected"].to_string();
    assert!(rejected.contains("section 'local_runtimes'"), "{rejected}");
}
