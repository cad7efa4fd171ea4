//! Error messages of the commands: one line for each problem, exit code 1, and no text for programmers.

use crate::support::gateway::gatepost_command;
use std::{fs, net::TcpListener, path::Path};
use tempfile::TempDir;

/// Runs a command in `folder` that must fail with exit code 1, and returns the messages on its standard error.
#[track_caller]
fn expect_failure(folder: &Path, args: &[&str]) -> String {
    let output = gatepost_command().current_dir(folder).args(args).env("RUST_BACKTRACE", "1").output().unwrap();
    let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), stdout.as_str()), (Some(1), ""), "{stderr}");
    for word in ["panicked", "backtrace", "os error", "Error {", "Some(", "gatepost::", "\"level\""] {
        assert!(args[0] == "run" || !stderr.contains(word), "'{word}' is meant for programmers: {stderr}");
    }
    stderr.lines().filter(|line| !line.starts_with('{')).map(|line| format!("{line}\n")).collect()
}

/// The messages of `check` without the codes of findings, which other commands do not have.
fn without_code(stderr: &str) -> String {
    stderr.replace(" [GP0100]", "")
}

/// A folder with this `gatepost.yaml` and an empty `agents.json`.
fn folder(config: &[u8]) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("gatepost.yaml"), config).unwrap();
    fs::write(folder.path().join("agents.json"), "[]").unwrap();
    folder
}

const VALID_CONFIG: &str =
    "listeners: [{address: '127.0.0.1:0'}]\nadmin: {address: '127.0.0.1:0'}\nagents: {sources: [agents.json]}\n";

#[test]
fn a_file_that_is_not_a_configuration_is_reported_in_one_line() {
    let cases: &[(&[u8], &str)] = &[
        (b"text\n", "line 1: must be an object"),
        (b"- a\n- b\n", "line 1: must be an object"),
        (b"\xff\xfe", "cannot be read (it is not text in UTF-8)"),
        (b"listeners: [\n", "line "),
        (b"listeners: 1\nlisteners: 2\n", "line 2: this is not YAML ("),
        (b"a: &a [*a]\n", "line 1: this is not YAML ("),
    ];
    for (config, problem) in cases {
        for command in ["check", "run"] {
            let folder = folder(config);
            let stderr = expect_failure(folder.path(), &[command]);
            assert!(stderr.starts_with(&format!("gatepost: gatepost.yaml: {problem}")), "{stderr}");
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
        }
    }
}

#[test]
fn a_missing_file_or_a_folder_is_reported_in_one_line() {
    let folder = TempDir::new().unwrap();
    let missing = "gatepost: gatepost.yaml: cannot be read (No such file or directory; name the file with -c FILE)\n";
    for args in [&["check"][..], &["run"], &["key", "new", "--caller", "a"]] {
        assert_eq!(without_code(&expect_failure(folder.path(), args)), missing);
    }
    fs::create_dir(folder.path().join("gatepost.yaml")).unwrap();
    for command in ["check", "run"] {
        let stderr = expect_failure(folder.path(), &[command]);
        assert_eq!(without_code(&stderr), "gatepost: gatepost.yaml: cannot be read (Is a directory)\n");
    }
}

#[test]
fn for_an_empty_file_the_required_property_is_reported() {
    let folder = folder(b"# nothing yet\n");
    let problem = "required property 'listeners' is missing";
    let stderr = expect_failure(folder.path(), &["check"]);
    assert_eq!(stderr, format!("gatepost: gatepost.yaml: {problem} [GP0100]\n"));
}

#[test]
fn for_a_value_of_the_wrong_type_the_format_is_reported() {
    let folder = folder(
        b"listeners: [{address: 80}]\nagents: {sources: [agents.json], poll_interval: 5}\nlimits: {per_caller: 10}\n",
    );
    let stderr = expect_failure(folder.path(), &["check"]);
    for hint in ["(write a duration: a number and a unit, such as 250ms", "(write calls per period, such as 10/s"] {
        assert!(stderr.contains(&format!("must be a string, not this number {hint}")), "{stderr}");
    }
    assert_eq!(stderr.lines().count(), 4, "{stderr}");
}

#[test]
fn all_missing_files_are_reported_at_once() {
    let folder = folder(
        b"listeners: [{address: '127.0.0.1:0', tls: {certificate: a.pem, key: a.key}}]\nagents: {sources: [nowhere]}\nauth:\n  api_keys:\n    files: [keys.jsonl]\n    pepper: file:pepper\naccess_log: {output: no/access.log}\n",
    );
    let stderr = expect_failure(folder.path(), &["check"]);
    let path_of = |name: &str| folder.path().join(name).display().to_string();
    for name in ["a.pem", "a.key", "nowhere", "keys.jsonl", "pepper", "no/access.log"] {
        assert!(stderr.contains(&path_of(name)), "{name} is not reported, or in another folder: {stderr}");
    }
    assert_eq!(stderr.lines().count(), 7, "{stderr}");
}

#[test]
fn r41_a_source_that_is_queried_on_demand_lists_its_servers_beside_other_writers() {
    let remote = |name: &str, settings: &str| {
        format!(
            "    - {{kind: aidip, url: 'https://{name}.example', name: {name}, endpoints: ['https://{name}.example']{settings}}}\n"
        )
    };
    let on_demand = "    - {kind: aidip, url: 'https://far.example', on_demand: true}\n";
    let head = "listeners: [{address: '127.0.0.1:0'}]\n";
    let other = remote("near", "");
    for (sources, registry, expected) in [
        (on_demand.to_owned(), "", true),
        (format!("{on_demand}{other}"), "", true),
        (format!("{on_demand}    - {{kind: ard, url: 'https://ard.example'}}\n"), "", false),
        (on_demand.to_owned(), "registry: {sqlite_file: agents.db}\n", false),
        (remote("far", ", on_demand: true"), "registry: {sqlite_file: agents.db}\n", true),
    ] {
        let folder = folder(format!("{head}agents:\n  sources:\n{sources}{registry}").as_bytes());
        let output = gatepost_command().current_dir(folder.path()).arg("check").output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), expected, "{stderr}");
        let problem = "line 4: agents.sources[0].endpoints: is required where on_demand is true";
        assert!(expected || stderr.contains(problem), "{stderr}");
    }
}

#[test]
fn r131_a_secret_in_the_configuration_is_not_repeated_in_the_message() {
    let folder = folder(
        b"listeners: [{address: '127.0.0.1:0'}]\nagents:\n  sources: [agents.json]\n  defaults: {credential: {value: hunter2}}\nauth:\n  api_keys: {pepper: hunter2}\n  bearer:\n    introspection: {endpoint: 'https://x', client_id: y, client_secret: hunter2}\n",
    );
    let stderr = expect_failure(folder.path(), &["check"]);
    assert!(!stderr.contains("hunter2"), "{stderr}");
    assert_eq!(
        stderr.matches("must be a reference to a secret, not the secret itself (write env:NAME or file:PATH)").count(),
        3,
        "{stderr}"
    );
}

#[test]
fn a_port_in_use_is_reported_with_its_key() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let folder = folder(VALID_CONFIG.replacen("127.0.0.1:0", &address.to_string(), 1).as_bytes());
    let message = format!(
        "gatepost: gatepost.yaml: line 1: listeners[0].address: {address} cannot be bound (Address already in use)\n"
    );
    assert_eq!(expect_failure(folder.path(), &["run"]), message);
}

#[test]
fn a_rejected_document_is_a_note_and_the_configuration_is_valid() {
    let folder = folder(VALID_CONFIG.as_bytes());
    fs::write(folder.path().join("agents.json"), r#"[{"id":"a b","name":"x","endpoint":"http://a.example/"}]"#)
        .unwrap();
    let output = gatepost_command().current_dir(folder.path()).arg("check").output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(stdout.starts_with("note: not served: "), "{stdout}");
    assert!(stdout.ends_with("gatepost.yaml: valid, 0 agents\n"), "{stdout}");
}

#[test]
fn key_new_reports_why_it_failed() {
    let folder = folder(VALID_CONFIG.as_bytes());
    let key_new = |args: &[&str]| expect_failure(folder.path(), &[&["key", "new", "--caller", "a"], args].concat());
    let no_file = "gatepost: gatepost.yaml names no API key file (set auth.api_keys.files, or use --file alone)\n";
    assert_eq!(key_new(&[]), no_file);
    let not_writable = "gatepost: no/keys cannot be written (No such file or directory)\n";
    assert_eq!(key_new(&["--file", "no/keys"]), not_writable);
    let invalid_date = "gatepost: --expires \"tomorrow\" is not a date-time (write it as 2030-01-31T00:00:00Z)\n";
    assert_eq!(key_new(&["--file", "keys", "--expires", "tomorrow"]), invalid_date);
    assert!(!folder.path().join("keys").exists(), "no file is written for a key that is not created");
}

#[test]
fn a_closed_standard_output_is_not_an_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = gatepost_command().arg("schema").stdout(writer).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
