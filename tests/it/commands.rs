//! What the commands say when something is wrong: one clear line for each problem, exit code 1, and nothing that
//! only a programmer could read.

use crate::support::gateway::command;
use std::{fs, net::TcpListener, path::Path};
use tempfile::TempDir;

/// Runs a command in `folder` that must fail; what it says on stderr.
#[track_caller]
fn fails(folder: &Path, args: &[&str]) -> String {
    let output = command().current_dir(folder).args(args).env("RUST_BACKTRACE", "1").output().unwrap();
    let (said, wrong) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!((output.status.code(), said.as_str()), (Some(1), ""), "{wrong}");
    for word in ["panicked", "backtrace", "os error", "Error {", "Some(", "gatepost::", "\"level\""] {
        assert!(args[0] == "run" || !wrong.contains(word), "'{word}' is no word for people: {wrong}");
    }
    wrong.lines().filter(|line| !line.starts_with('{')).map(|line| format!("{line}\n")).collect()
}

/// A folder with one configuration, as `gatepost.yaml`.
fn folder(config: &[u8]) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("gatepost.yaml"), config).unwrap();
    fs::write(folder.path().join("agents.json"), "[]").unwrap();
    folder
}

const GOOD: &str =
    "listen: [{address: '127.0.0.1:0'}]\nadmin: {address: '127.0.0.1:0'}\nagents: {from: [agents.json]}\n";

#[test]
fn a_file_that_is_no_configuration_is_refused_in_one_line() {
    let cases: &[(&[u8], &str)] = &[
        (b"text\n", "line 1: must be an object"),
        (b"- a\n- b\n", "line 1: must be an object"),
        (b"\xff\xfe", "cannot be read (it is not text in UTF-8)"),
        (b"listen: [\n", "line "),
        (b"listen: 1\nlisten: 2\n", "line 2: this is not YAML ("),
        (b"a: &a [*a]\n", "line 1: this is not YAML ("),
    ];
    for (config, said) in cases {
        for command in ["check", "run"] {
            let folder = folder(config);
            let wrong = fails(folder.path(), &[command]);
            assert!(wrong.starts_with(&format!("gatepost: gatepost.yaml: {said}")), "{wrong}");
            assert_eq!(wrong.lines().count(), 1, "{wrong}");
        }
    }
}

#[test]
fn a_file_that_is_not_there_or_is_a_folder_is_told_in_one_line() {
    let folder = TempDir::new().unwrap();
    let missing = "gatepost: gatepost.yaml: cannot be read (No such file or directory; name the file with -c FILE)\n";
    for args in [&["check"][..], &["run"], &["key", "new", "--caller", "a"]] {
        assert_eq!(fails(folder.path(), args), missing);
    }
    fs::create_dir(folder.path().join("gatepost.yaml")).unwrap();
    for command in ["check", "run"] {
        assert_eq!(fails(folder.path(), &[command]), "gatepost: gatepost.yaml: cannot be read (Is a directory)\n");
    }
}

#[test]
fn an_empty_file_is_told_what_it_needs() {
    let folder = folder(b"# nothing yet\n");
    let needs = "required property 'listen' is missing";
    assert_eq!(fails(folder.path(), &["check"]), format!("gatepost: gatepost.yaml: {needs}\n"));
}

#[test]
fn a_value_of_the_wrong_type_is_told_how_it_is_written() {
    let folder = folder(b"listen: [{address: 80}]\nagents: {from: [agents.json], poll: 5}\nlimits: {per_caller: 10}\n");
    let wrong = fails(folder.path(), &["check"]);
    for hint in ["(write a duration: a number and a unit, such as 250ms", "(write calls per period, such as 10/s"] {
        assert!(wrong.contains(&format!("must be a string, not this number {hint}")), "{wrong}");
    }
    assert_eq!(wrong.lines().count(), 4, "{wrong}");
}

#[test]
fn files_that_are_missing_are_told_at_once() {
    let folder = folder(
        b"listen: [{address: '127.0.0.1:0', tls: {certificate: a.pem, key: a.key}}]\nagents: {from: [nowhere]}\nauth:\n  api_keys:\n    files: [keys.jsonl]\n    pepper: file:pepper\naccess_log: {to: no/access.log}\n",
    );
    let wrong = fails(folder.path(), &["check"]);
    let at = |name: &str| folder.path().join(name).display().to_string();
    for name in ["a.pem", "a.key", "nowhere", "keys.jsonl", "pepper", "no/access.log"] {
        assert!(wrong.contains(&at(name)), "{name} is not told, or not from the file's folder: {wrong}");
    }
    assert_eq!(wrong.lines().count(), 7, "{wrong}");
}

#[test]
fn r131_what_stands_where_a_secret_should_be_named_is_not_repeated() {
    let folder = folder(
        b"listen: [{address: '127.0.0.1:0'}]\nagents:\n  from: [agents.json]\n  defaults: {credential: {value: hunter2}}\nauth:\n  api_keys: {pepper: hunter2}\n  bearer:\n    introspection: {endpoint: 'https://x', client_id: y, client_secret: hunter2}\n",
    );
    let wrong = fails(folder.path(), &["check"]);
    assert!(!wrong.contains("hunter2"), "{wrong}");
    assert_eq!(
        wrong.matches("must be a reference to a secret, not the secret itself (write env:NAME or file:PATH)").count(),
        3,
        "{wrong}"
    );
}

#[test]
fn a_port_that_is_taken_is_told_with_its_place() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let folder = folder(GOOD.replacen("127.0.0.1:0", &address.to_string(), 1).as_bytes());
    let said = format!(
        "gatepost: gatepost.yaml: line 1: listen[0].address: {address} cannot be bound (Address already in use)\n"
    );
    assert_eq!(fails(folder.path(), &["run"]), said);
}

#[test]
fn a_document_that_is_refused_is_noted_and_the_configuration_is_good() {
    let folder = folder(GOOD.as_bytes());
    fs::write(folder.path().join("agents.json"), r#"[{"id":"a b","name":"x","endpoint":"http://a.example/"}]"#)
        .unwrap();
    let output = command().current_dir(folder.path()).arg("check").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.starts_with("note: not served: ") && said.ends_with("gatepost.yaml: valid, 0 agents\n"), "{said}");
}

#[test]
fn a_key_that_cannot_be_made_says_why() {
    let folder = folder(GOOD.as_bytes());
    let new = |args: &[&str]| fails(folder.path(), &[&["key", "new", "--caller", "a"], args].concat());
    let nowhere = "gatepost: gatepost.yaml names no API key file (set auth.api_keys.files, or use --file alone)\n";
    assert_eq!(new(&[]), nowhere);
    let gone = "gatepost: no/keys cannot be written (No such file or directory)\n";
    assert_eq!(new(&["--file", "no/keys"]), gone);
    let when = "gatepost: --expires \"tomorrow\" is not a date-time (write it as 2030-01-31T00:00:00Z)\n";
    assert_eq!(new(&["--file", "keys", "--expires", "tomorrow"]), when);
    assert!(!folder.path().join("keys").exists(), "nothing is written for a key that is not made");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command().arg("schema").stdout(writer).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}
