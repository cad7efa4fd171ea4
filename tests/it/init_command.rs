//! `gatepost init`: what it writes is a configuration with which a gateway serves its agents. Also the completions and the
//! manual pages.

use crate::support::{
    agent::Agent,
    gateway::{Gateway, gatepost_command, send},
};
use serde_json::json;
use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Output};
use tempfile::TempDir;

fn init(folder: &Path, args: &[&str]) -> Output {
    gatepost_command().current_dir(folder).arg("init").args(args).output().unwrap()
}

#[tokio::test]
async fn a_gateway_serves_its_agents_with_the_written_configuration_and_key() {
    let (echo, folder) = (Agent::echo().await, TempDir::new().unwrap());
    let agents = [format!("echo=http://{}/", echo.address), format!("other=http://localhost:{}/", echo.address.port())];
    let args = ["--agent", &agents[0], "--agent", &agents[1], "--caller", "team-b", "--listen", "127.0.0.1:0"];
    let output = init(folder.path(), &args);
    let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("gatepost.yaml, agents/echo.yaml, agents/other.yaml, keys.jsonl"), "{stderr}");
    assert!(stderr.contains("/agents/echo/invoke"), "{stderr}");
    let (valid, key) = stdout.trim_end().split_once('\n').unwrap();
    assert!(key.starts_with("gp_") && valid.ends_with("gatepost.yaml: valid, 2 agents"), "{stdout}");
    let key = key.to_owned();
    for name in ["gatepost.yaml", "agents/echo.yaml", "keys.jsonl"] {
        let mode = fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{name} is readable for others");
    }
    let environment = [("GATEPOST__ADMIN__ADDRESS".to_owned(), "127.0.0.1:0".to_owned())];
    let gate =
        tokio::task::spawn_blocking(move || Gateway::spawn(folder, Vec::new(), &environment, &[])).await.unwrap();
    for agent in ["echo", "other"] {
        let call = gate.request("POST", &format!("/agents/{agent}/invoke")).header("x-api-key", &key);
        assert_eq!(send(call.json(&json!({"a": 1}))).await.status, 200, "{agent}");
    }
}

#[test]
fn what_is_written_passes_the_strict_check_of_agents_and_listeners_beyond_this_machine() {
    for (args, rule) in [
        (&["--listen", "0.0.0.0:8080", "--agent", "a=https://a.example/"][..], "allow_plaintext: true # calls"),
        (&["--agent", "a=http://10.0.0.1:9000/", "--agent", "b=http://b.invalid/"], "agents: [\"a\", \"b\"]"),
        (&["--agent", "a=http://[::1]:9000/", "--agent", "b=http://localhost:1/"], "\"127.0.0.1:1\""),
        (&["--agent", "a=http://[::1]:9000/", "--agent", "b=http://127.0.0.1/"], "[\"127.0.0.1:80\", \"[::1]:9000\"]"),
        (&["--agent", "a=http://[::ffff:127.0.0.1]:9000/"], "[\"127.0.0.1:9000\"]"),
        (&[], "sources: [agents]"),
    ] {
        let folder = TempDir::new().unwrap();
        let output = init(folder.path(), args);
        let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        let count = args.iter().filter(|arg| **arg == "--agent").count();
        let valid = format!("valid, {count} {}", if count == 1 { "agent" } else { "agents" });
        assert!(output.status.success() && stdout.contains(&valid), "{args:?}: {stdout}{stderr}");
        assert!(!stdout.contains("not served"), "{args:?}: {stdout}");
        let config = fs::read_to_string(folder.path().join("gatepost.yaml")).unwrap();
        assert!(config.contains(rule), "{args:?}: {config}");
    }
}

#[test]
fn a_configuration_that_has_a_problem_leaves_no_file_and_no_key() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("agents")).unwrap();
    // The gateway reads no key from a folder.
    fs::create_dir(folder.path().join("keys.jsonl")).unwrap();
    let output = init(folder.path(), &["--agent", "a=https://a.example/"]);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    assert!(!folder.path().join("gatepost.yaml").exists() && !folder.path().join("agents/a.yaml").exists());
    // A unit for root or in such a folder is refused, after the folder was created.
    let output = init(folder.path(), &["a folder", "--systemd"]);
    assert!(!output.status.success() && !folder.path().join("a folder").exists(), "{output:?}");
    let output = init(folder.path(), &["--agent", "a=https://a.example/", "--agent", "a=https://b.example/"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && stderr.contains("the agent a is given twice"), "{stderr}");
}

#[test]
fn an_agent_that_would_not_be_served_leaves_no_file_and_no_key() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("agents")).unwrap();
    // Of two documents with an id, the first is served.
    let earlier = folder.path().join("agents/0.yaml");
    fs::write(&earlier, "id: planner\nname: Planner\nendpoint: https://other.example/\n").unwrap();
    let output = init(folder.path(), &["--agent", "planner=https://a.example/"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && output.stdout.is_empty(), "{stderr}");
    assert!(stderr.contains("the agent planner would not be served; nothing was written"), "{stderr}");
    assert!(stderr.contains("not served: ") && stderr.contains("agents/planner.yaml"), "{stderr}");
    for name in ["gatepost.yaml", "agents/planner.yaml", "keys.jsonl"] {
        assert!(!folder.path().join(name).exists(), "{name}");
    }
    assert!(earlier.exists());
}

#[test]
fn nothing_that_exists_is_overwritten() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("agents")).unwrap();
    for name in ["gatepost.yaml", "agents/a.yaml"] {
        fs::write(folder.path().join(name), "mine").unwrap();
        let output = init(folder.path(), &["--agent", "a=https://a.example/"]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{name}");
        assert!(stderr.contains(&format!("{name} exists already; nothing was written")), "{stderr}");
        assert_eq!(fs::read_to_string(folder.path().join(name)).unwrap(), "mine");
        fs::remove_file(folder.path().join(name)).unwrap();
    }
    assert_eq!(fs::read_dir(folder.path().join("agents")).unwrap().count(), 0);
    assert!(!folder.path().join("keys.jsonl").exists());
}

#[test]
fn wrong_arguments_and_folders_are_named() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for (args, reason) in [
        (&["--agent", "planner"][..], "must be ID=URL"),
        (&["--agent", "a b=https://a.example/"], "a b"),
        (&["--agent", "a=mqtt://a.example/"], "must begin with http"),
        (&["--agent", "a=http://user:pw@127.0.0.1:9000/"], "must not contain a user name or password"),
        (&["--agent", "a=http://127.0.0.1:0/"], "must not have port 0"),
        (&["--agent", "a=http://169.254.169.254/"], "169.254.169.254 is a link-local address or a metadata service"),
        (&["--agent", "a=http://[fe80::1]:9000/"], "fe80::1 is a link-local address"),
        (&["--agent", "a=http://100.100.100.200/"], "where clouds hand out credentials"),
        (&["--agent", "a=http://[64:ff9b::a9fe:a9fe]/"], "where clouds hand out credentials"),
        (&["--listen", "8080"], "invalid socket address"),
        (&["--caller", ""], "is not a valid name"),
        (&["file"], "cannot be created"),
    ] {
        let output = init(folder.path(), args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && stderr.contains(reason), "{args:?}: {stderr}");
        assert!(!folder.path().join("gatepost.yaml").exists(), "{args:?}");
    }
}

#[test]
fn an_unusual_folder_and_names_that_yaml_takes_for_other_types_work() {
    let folder = TempDir::new().unwrap();
    let output =
        init(folder.path(), &["new/a folder", "--agent", "1e3=https://a.example/?q=%22:%20x#f", "--caller", "no: #x"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn each_shell_has_completions_and_each_command_a_manual_page() {
    for shell in ["bash", "zsh", "fish"] {
        let output = gatepost_command().args(["completions", shell]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.contains("take-over"), "{shell}: {text}");
    }
    let folder = TempDir::new().unwrap();
    let output = gatepost_command().arg("man").arg(folder.path().join("man1")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for page in ["gatepost.1", "gatepost-run.1", "gatepost-key-new.1", "gatepost-init.1"] {
        let text = fs::read_to_string(folder.path().join("man1").join(page)).unwrap();
        assert!(text.contains(".TH"), "{page}: {text}");
    }
}
