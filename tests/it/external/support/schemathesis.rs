//! Schemathesis and openapi-spec-validator (Python): the first sends the requests that an OpenAPI document describes, and
//! such that it forbids, and compares the responses with it; the second checks the document itself.

use super::python_packages::PythonPackages;
use crate::support::gateway::{Gateway, send};
use serde_json::Value;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// The result of a run.
pub struct Findings {
    /// Whether every check held.
    pub is_clean: bool,
    /// Number of requests.
    pub requests: usize,
    /// What the program printed.
    pub report: String,
}

async fn python(module: &str) -> (Command, PythonPackages) {
    let packages = tokio::task::spawn_blocking(|| PythonPackages::install("schemathesis")).await.unwrap();
    let mut command = packages.python();
    command.args(["-m", module]).stdin(Stdio::null());
    (command, packages)
}

/// Reads a document with the key of `team-a`.
pub async fn read_document(gate: &Gateway, path: &str) -> Value {
    send(gate.request("GET", path).header("x-api-key", gate.key("team-a"))).await.expect_ok()
}

/// Checks the gateway by `document`, with the settings and exceptions of `tests/schemathesis/schemathesis.toml`.
pub async fn check(gate: &Gateway, document: &Value, args: &[&str]) -> Findings {
    let (mut command, packages) = python("schemathesis.cli").await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("openapi.json");
    std::fs::write(&file, document.to_string()).unwrap();
    command
        .arg("--config-file")
        .arg(packages.source().join("schemathesis.toml"))
        .arg("run")
        .arg(&file)
        .args(["--url", &gate.url(""), "--no-color", "--checks", "all"])
        .args(args)
        .current_dir(folder.path())
        .env("GATEPOST_KEY", gate.key("team-a"))
        .env("NO_PROXY", "127.0.0.1");
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let report = text(&output.stdout) + &text(&output.stderr);
    let count = report.lines().find_map(|line| line.trim().split_once(" generated")?.0.parse().ok());
    let requests = count.unwrap_or_else(|| panic!("schemathesis did not run: {report}"));
    Findings { is_clean: output.status.success(), requests, report }
}

/// Returns what openapi-spec-validator says of `document`; `None` if it is valid.
pub async fn invalidity(document: &Value) -> Option<String> {
    let (mut command, _) = python("openapi_spec_validator").await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("openapi.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let output = command.arg(&file).output().unwrap();
    let report = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (!output.status.success()).then(|| report.into_owned())
}
