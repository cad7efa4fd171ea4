//! Commands that list, disable and rotate API keys, and what a running gateway makes of them.

use crate::support::{
    agent::Agent,
    eventually, eventually_within,
    gateway::{Gateway, gatepost_command, gateway, new_key, send},
};
use serde_json::{Value, json};
use std::{
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
    time::Duration,
};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

fn key_command(folder: &Path, args: &[&str]) -> Command {
    let mut command = gatepost_command();
    command.current_dir(folder).arg("key").args(args);
    command
}

fn run(folder: &Path, args: &[&str]) -> Output {
    key_command(folder, args).output().unwrap()
}

/// Runs a command that succeeds; returns what it prints, without the line feed at its end.
fn expect_output(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// Runs a command that fails and prints nothing on stdout; returns its message.
fn expect_failure(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args);
    assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn prefix(key: &str) -> &str {
    key.split('_').nth(1).unwrap()
}

fn stored(folder: &Path, key: &str) -> Value {
    let text = std::fs::read_to_string(folder.join("keys.jsonl")).unwrap();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.into_iter().find(|line| line["prefix"] == prefix(key)).unwrap()
}

/// Seconds until a key expires.
fn remaining(folder: &Path, key: &str) -> i64 {
    let expires = OffsetDateTime::parse(stored(folder, key)["expires"].as_str().unwrap(), &Rfc3339).unwrap();
    (expires - OffsetDateTime::now_utc()).whole_seconds()
}

async fn status(gate: &Gateway, key: &str) -> u16 {
    send(gate.request("POST", "/agents/echo/invoke").header("x-api-key", key).json(&json!({}))).await.status
}

const DAY: i64 = 86_400;

#[test]
fn r28_a_new_key_expires_after_ninety_days_unless_the_operator_says_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let create =
        |args: &[&str]| new_key(folder.path(), "team-a", &args.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert!((90 * DAY - 60..=90 * DAY).contains(&remaining(folder.path(), &create(&[]))));
    assert!((2 * 3_600 - 60..=2 * 3_600).contains(&remaining(folder.path(), &create(&["--expires-in", "2h"]))));
    assert_eq!(stored(folder.path(), &create(&["--expires-in", "never"])).get("expires"), None);
    let dated = create(&["--expires", "2099-01-31T00:00:00Z"]);
    assert_eq!(stored(folder.path(), &dated)["expires"], "2099-01-31T00:00:00Z");
    let before = std::fs::read_to_string(folder.path().join("keys.jsonl")).unwrap();
    for args in [
        &["--expires-in", "0s"][..],
        &["--expires-in", "soon"],
        &["--expires-in=-1d"],
        &["--expires-in", "20000d"],
        &["--expires-in", "1d", "--expires", "2099-01-31T00:00:00Z"],
    ] {
        let args = [&["new", "--file", "keys.jsonl", "--caller", "a"], args].concat();
        assert!(expect_failure(folder.path(), &args).contains("--expires"), "{args:?}");
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("keys.jsonl")).unwrap(), before);
}

#[test]
fn r28_the_list_of_keys_has_their_states_and_no_hash() {
    let folder = tempfile::tempdir().unwrap();
    let args = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    let valid = new_key(folder.path(), "team-a", &args(&["--group", "g", "--group", "h", "--tier", "gold"]));
    let expired = new_key(folder.path(), "team-b", &args(&["--expires", "2020-01-01T00:00:00Z"]));
    let disabled = new_key(folder.path(), "team-c", &args(&["--expires-in", "never"]));
    expect_output(folder.path(), &["disable", "--file", "keys.jsonl", prefix(&disabled)]);
    let path = folder.path().join("keys.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}\nno key\n")).unwrap();
    let output = run(folder.path(), &["list", "--file", "keys.jsonl"]);
    let list = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["PREFIX", "STATE", "EXPIRES", "CREATED", "CALLER", "GROUPS", "TIER", "WHERE"]);
    assert_eq!(
        (rows[1][0], rows[1][1], &rows[1][4..]),
        (prefix(&valid), "valid", &["team-a", "g,h", "gold", "keys.jsonl"][..])
    );
    assert_eq!(rows[2][..3], [prefix(&expired), "expired", "2020-01-01T00:00:00Z"]);
    assert_eq!(rows[3][..3], [prefix(&disabled), "disabled", "never"]);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "keys.jsonl: line 5 is not a key\n");
    for key in [&valid, &expired, &disabled] {
        assert!(
            !list.contains(stored(folder.path(), key)["hash"].as_str().unwrap()) && !list.contains(&**key),
            "{list}"
        );
    }
}

#[tokio::test]
async fn r28_a_new_key_works_as_soon_as_the_command_has_ended() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let (folder, admin) = (gate.folder(), gate.admin_address.to_string());
    for args in [vec!["new", "--caller", "team-a"], vec!["rotate", prefix(gate.key("team-a"))]] {
        let mut command = key_command(&folder, &args);
        command.env("GATEPOST__ADMIN__ADDRESS", &admin);
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && !messages.contains("has not read"), "{messages}");
        let key = String::from_utf8(output.stdout).unwrap();
        assert_eq!(status(&gate, key.trim()).await, 200, "{args:?}");
    }
}

#[tokio::test]
async fn r28_a_disabled_key_is_refused_within_a_second_or_so_and_only_the_log_says_why() {
    let echo = Agent::echo().await;
    let gate = gateway().agent("echo", &echo).start().await;
    let folder = gate.folder();
    let (disabled, other, expiring) = (
        gate.key("team-a").to_owned(),
        new_key(&folder, "team-a", &[]),
        new_key(&folder, "team-a", &["--expires-in".into(), "3s".into()]),
    );
    eventually("the last key is accepted", async || status(&gate, &expiring).await == 200).await;
    assert_eq!(status(&gate, &disabled).await, 200);
    assert_eq!(expect_output(&folder, &["disable", prefix(&disabled)]), "1 key disabled");
    eventually_within(Duration::from_secs(3), "the key is refused", async || status(&gate, &disabled).await == 401)
        .await;
    assert_eq!(status(&gate, &other).await, 200);
    eventually("the other key expires", async || status(&gate, &expiring).await == 401).await;

    let refusal = async |name: &str, key: &str| {
        let request = gate.request("POST", "/agents/echo/invoke").header("x-api-key", key).header("x-request-id", name);
        let response = send(request.json(&json!({}))).await;
        let challenge = response.header("www-authenticate").map(str::to_owned);
        (response.status, challenge, response.text().replace(name, "ID"))
    };
    let unknown = format!("gp_AAAAAAAAAAAA_{}", disabled.rsplit('_').next().unwrap());
    let forged = format!("gp_{}_{}", prefix(&disabled), other.rsplit('_').next().unwrap());
    let expected = refusal("call-unknown", &unknown).await;
    for (name, key) in [("call-disabled", &disabled), ("call-expired", &expiring), ("call-forged", &forged)] {
        assert_eq!(refusal(name, key).await, expected);
    }
    let mut log = Vec::new();
    eventually("the refusals are logged", async || {
        log = gate.access_log(1).await;
        log.iter().any(|line| line["request_id"] == "call-forged")
    })
    .await;
    let detail_of = |name: &str| log.iter().find(|line| line["request_id"] == name).unwrap()["detail"].clone();
    assert_eq!(detail_of("call-disabled"), format!("the key with the prefix {} is disabled", prefix(&disabled)));
    assert_eq!(detail_of("call-expired"), format!("the key with the prefix {} has expired", prefix(&expiring)));
    // Who has the prefix alone does not pass for the holder.
    assert_eq!(detail_of("call-forged"), json!(null));
    assert!(!gate.read_file("access.log").contains(disabled.rsplit('_').next().unwrap()));
}

#[tokio::test]
async fn r28_a_rotated_key_has_the_rights_of_the_previous_one_which_stays_valid_for_the_overlap() {
    let echo = Agent::echo().await;
    let build = gateway()
        .agent("echo", &echo)
        .access("access:\n  grants:\n    - {groups: ['staff'], agents: ['*']}\n")
        .env("PEPPER", "a pepper")
        .section("    pepper: env:PEPPER\n");
    let gate = build.start().await;
    let folder = gate.folder();
    let with_pepper = |args: &[&str]| {
        let output = key_command(&folder, args).env("PEPPER", "a pepper").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    };
    let old =
        with_pepper(&["new", "--caller", "team-b", "--group", "staff", "--tier", "gold", "--expires-in", "never"]);
    eventually("the key is accepted", async || status(&gate, &old).await == 200).await;
    let new = with_pepper(&["rotate", prefix(&old), "--overlap", "3s", "--expires-in", "30d"]);
    for member in ["caller", "groups", "tier"] {
        assert_eq!(stored(&folder, &new)[member], stored(&folder, &old)[member]);
    }
    assert!((30 * DAY - 60..=30 * DAY).contains(&remaining(&folder, &new)));
    eventually("the new key is accepted", async || status(&gate, &new).await == 200).await;
    eventually("the previous key ends with the overlap", async || status(&gate, &old).await == 401).await;
    assert_eq!(status(&gate, &new).await, 200);
    // An overlap never makes a key valid for longer.
    let soon = with_pepper(&["new", "--caller", "team-b", "--expires-in", "1h"]);
    let next = with_pepper(&["rotate", &format!("gp_{}", prefix(&soon))]);
    assert!(remaining(&folder, &soon) <= 3_600);
    assert!((90 * DAY - 60..=90 * DAY).contains(&remaining(&folder, &next)));
}

#[test]
fn r28_a_command_changes_only_the_lines_of_its_keys_and_keeps_the_permissions() {
    let folder = tempfile::tempdir().unwrap();
    let keys: Vec<String> = (0..3).map(|_| new_key(folder.path(), "team-a", &[])).collect();
    let path = folder.path().join("keys.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    // By hand: an empty line, a line that is no key, spaces, and no line feed at the end.
    let edited = format!("\n# kept\n  {}\r\n{}\n{}", lines[0], lines[1], lines[2]);
    std::fs::write(&path, &edited).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    expect_output(folder.path(), &["disable", "--file", "keys.jsonl", prefix(&keys[1])]);
    let disabled = lines[1].replace("\"created\"", "\"disabled\":true,\"created\"");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), edited.replace(lines[1], &disabled));
    assert_eq!(expect_output(folder.path(), &["disable", "--file", "keys.jsonl", prefix(&keys[1])]), "0 keys disabled");
    let new = expect_output(folder.path(), &["rotate", "--file", "keys.jsonl", prefix(&keys[2])]);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with(&format!("\n# kept\n  {}\r\n{disabled}\n", lines[0])) && text.ends_with("}\n"), "{text}");
    assert_eq!(stored(folder.path(), &new)["caller"], "team-a");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["keys.jsonl"], "no temporary file is left");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("keys.jsonl", &link).unwrap();
    expect_output(folder.path(), &["disable", "--file", "link", prefix(&keys[0])]);
    assert!(link.is_symlink() && stored(folder.path(), &keys[0])["disabled"] == true);
    assert_eq!(
        expect_output(folder.path(), &["disable", "--file", "keys.jsonl", "--caller", "team-a"]),
        "2 keys disabled"
    );
}

#[test]
fn r28_commands_for_keys_that_are_not_there_change_nothing_and_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let key = new_key(folder.path(), "team-a", &[]);
    let ended = new_key(folder.path(), "team-a", &["--expires".into(), "2020-01-01T00:00:00Z".into()]);
    let path = folder.path().join("keys.jsonl");
    let before = std::fs::read_to_string(&path).unwrap();
    let file = ["--file", "keys.jsonl"];
    for (args, reason) in [
        (&["disable", "AAAAAAAAAAAA"][..], "there is no key with the prefix AAAAAAAAAAAA"),
        (&["disable", prefix(&key), "AAAAAAAAAAAA"], "there is no key with the prefix AAAAAAAAAAAA"),
        (&["disable", "--caller", "team-b"], "the caller team-b has no key"),
        (&["disable", "--caller", "team-a", prefix(&key)], "cannot be used with"),
        (&["disable"], "--caller <CALLER>\n  <PREFIXES>..."),
        (&["disable", &key], "a whole key does not belong on a command line"),
        (&["rotate", &key], "a whole key does not belong on a command line"),
        (&["rotate", "AAAAAAAAAAAA"], "there is no key with the prefix"),
        (&["rotate", prefix(&ended)], "is disabled or has expired"),
        (&["rotate", prefix(&key), "--overlap", "soon"], "is not a duration"),
    ] {
        let message = expect_failure(folder.path(), &[args, &file].concat());
        assert!(message.contains(reason), "{args:?}: {message}");
        // The terminal's log and the shell's history would keep the secret half.
        assert!(!message.contains(key.rsplit('_').next().unwrap()), "{message}");
    }
    assert!(expect_failure(folder.path(), &["list", "--file", "absent"]).contains("absent cannot be read"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
    let in_config = before.lines().next().unwrap();
    std::fs::write(
        folder.path().join("gatepost.yaml"),
        format!("listeners:\n  - address: 127.0.0.1:0\nauth:\n  api_keys:\n    keys: [{in_config}]\n"),
    )
    .unwrap();
    let message = expect_failure(folder.path(), &["disable", prefix(&key)]);
    assert!(message.contains("in auth.api_keys.keys of the configuration"), "{message}");
    let output = run(folder.path(), &["disable", "--caller", "team-a"]);
    let message = String::from_utf8(output.stderr).unwrap();
    let named = format!("keys that stay valid: {}", prefix(&key));
    assert!(!output.status.success() && message.contains(&named), "{message}");
    assert!(expect_output(folder.path(), &["list"]).contains("team-a"));
}

#[test]
fn r28_commands_at_the_same_time_lose_no_key() {
    let folder = tempfile::tempdir().unwrap();
    let keys: Vec<String> = (0..4).map(|_| new_key(folder.path(), "team-a", &[])).collect();
    let commands = keys.iter().flat_map(|key| {
        let rotate = key_command(folder.path(), &["rotate", "--file", "keys.jsonl", prefix(key)]);
        let create = key_command(folder.path(), &["new", "--file", "keys.jsonl", "--caller", "team-b"]);
        [rotate, create]
    });
    let children: Vec<_> = commands
        .map(|mut command| {
            command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    let mut created = keys.clone();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        created.push(String::from_utf8(output.stdout).unwrap().trim_end().to_owned());
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("keys.jsonl")).unwrap().lines().count(), 12);
    for key in &created {
        stored(folder.path(), key);
    }
}

#[test]
fn r28_a_new_key_follows_no_link_and_leaves_a_file_that_other_users_cannot_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let new = |name: &str| run(folder.path(), &["new", "--file", name, "--caller", "team-a"]);
    std::fs::write(path("victim"), "").unwrap();
    std::os::unix::fs::symlink("victim", path("link")).unwrap();
    std::os::unix::fs::symlink("absent", path("dangling")).unwrap();
    for name in ["link", "dangling"] {
        let output = new(name);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && message.contains("symbolic link"), "{name}: {message}");
        assert!(output.stdout.is_empty(), "no key is printed");
    }
    assert_eq!(std::fs::read_to_string(path("victim")).unwrap(), "");
    assert!(!path("absent").exists());
    std::fs::write(path("open"), "").unwrap();
    std::fs::set_permissions(path("open"), std::fs::Permissions::from_mode(0o644)).unwrap();
    for name in ["open", "fresh"] {
        assert!(new(name).status.success());
        assert_eq!(std::fs::metadata(path(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
}

#[test]
fn r101_a_key_whose_entry_does_not_reach_the_disk_is_not_printed_and_not_left_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let config = "listeners: [{address: '127.0.0.1:0'}]\nagents: {sources: [agents.json]}\nauth: {api_keys: {files: [keys.jsonl]}}\naudit: {file: audit.log}\n";
    std::fs::write(path("gatepost.yaml"), config).unwrap();
    std::fs::write(path("agents.json"), "[]").unwrap();
    let new = ["new", "-c", "gatepost.yaml", "--caller", "team-a"];
    let keys: Vec<String> = (0..8).map(|_| expect_output(folder.path(), &new)).collect();
    let stored_before = std::fs::read_to_string(path("keys.jsonl")).unwrap();
    let blocks = std::fs::metadata(path("audit.log")).unwrap().len() / 512;
    assert!((stored_before.len() as u64) < (blocks - 1) * 512, "only the audit log is at the limit");
    // A limit on the size of files, which fails as a full disk does.
    let limited = |args: &[&str]| {
        let program = env!("CARGO_BIN_EXE_gatepost");
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" key \"$@\"");
        Command::new("sh").current_dir(folder.path()).args(["-c", &script, program]).args(args).output().unwrap()
    };
    for args in [&new[..], &["rotate", "-c", "gatepost.yaml", prefix(&keys[0])]] {
        let output = limited(args);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && message.contains("audit log"), "{args:?}: {message}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("gp_"), "{args:?} prints a key");
        assert_eq!(std::fs::read_to_string(path("keys.jsonl")).unwrap(), stored_before, "{args:?}");
    }
    // With space on the disk the same commands work.
    expect_output(folder.path(), &new);
}
