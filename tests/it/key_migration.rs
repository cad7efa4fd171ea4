//! Former names of configuration keys: they load with a warning, and `gatepost check --migrate` rewrites the file.

use crate::support::gateway::gatepost_command;
use std::{fs, path::Path, process::Output};
use tempfile::TempDir;

const FORMER: &str = "\
listen: # callers
  - address: 127.0.0.1:0
agents:
  from: [agents.json] # files
  poll: 1s
limits: {shed_above: 20ms}
";

const CURRENT: &str = "\
listeners: # callers
  - address: 127.0.0.1:0
agents:
  sources: [agents.json] # files
  poll_interval: 1s
limits: {max_scheduling_delay: 20ms}
";

fn folder_with(yaml: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("agents.json"), "[]").unwrap();
    fs::write(folder.path().join("gatepost.yaml"), yaml).unwrap();
    folder
}

fn check(folder: &Path, options: &[&str]) -> (Output, String, String) {
    let output = gatepost_command().current_dir(folder).arg("check").args(options).output().unwrap();
    let (stdout, stderr) = (output.stdout.clone(), output.stderr.clone());
    (output, String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_former_key_loads_with_a_warning_that_gives_the_current_one() {
    let folder = folder_with(FORMER);
    let (output, stdout, stderr) = check(folder.path(), &[]);
    assert!(output.status.success() && stdout.contains("valid"), "{stderr}");
    for words in [
        "line 1: listen: is now 'listeners'",
        "line 4: agents.from: is now 'agents.sources'",
        "line 5: agents.poll: is now 'agents.poll_interval'",
        "line 6: limits.shed_above: is now 'limits.max_scheduling_delay'",
    ] {
        assert!(stderr.contains(words), "'{words}' is not in: {stderr}");
    }
    assert_eq!(fs::read_to_string(folder.path().join("gatepost.yaml")).unwrap(), FORMER, "check writes nothing");
}

#[test]
fn migrate_rewrites_the_keys_and_keeps_the_rest() {
    let folder = folder_with(FORMER);
    let (output, stdout, stderr) = check(folder.path(), &["--migrate"]);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(
        (stdout.as_str(), stderr.as_str()),
        ("gatepost.yaml: 4 keys renamed\ngatepost.yaml: valid, 0 agents\n", "")
    );
    assert_eq!(fs::read_to_string(folder.path().join("gatepost.yaml")).unwrap(), CURRENT);
    let (_, stdout, stderr) = check(folder.path(), &["--migrate"]);
    assert_eq!(
        (stdout.as_str(), stderr.as_str()),
        ("gatepost.yaml: 0 keys renamed\ngatepost.yaml: valid, 0 agents\n", "")
    );
}

#[test]
fn a_file_that_cannot_be_migrated_is_unchanged_and_the_reason_is_named() {
    let both = format!("{FORMER}listeners: [{{address: '127.0.0.1:0'}}]\n");
    for (yaml, words) in [
        (both.as_str(), "is present twice, once with a former name"),
        ("listen: [\n", "this is not YAML"),
        (
            "listen: [{address: '127.0.0.1:0'}]\nagents:\n  from:\n    - hold_loss: 0.5\n      kind: ard\n      hold_for: 5m\n",
            "line 6: agents.sources[0].hold_for: cannot be rewritten automatically",
        ),
    ] {
        let folder = folder_with(yaml);
        let (output, stdout, stderr) = check(folder.path(), &["--migrate"]);
        assert_eq!((output.status.code(), stdout.as_str()), (Some(1), ""), "{yaml}");
        assert!(stderr.contains(words), "'{words}' is not in: {stderr}");
        assert_eq!(fs::read_to_string(folder.path().join("gatepost.yaml")).unwrap(), yaml);
    }
}

#[test]
fn a_problem_at_a_former_key_is_reported_with_the_current_name_and_the_line() {
    let folder = folder_with(&FORMER.replace("poll: 1s", "poll: often"));
    let (output, _, stderr) = check(folder.path(), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("line 5: agents.poll_interval: "), "{stderr}");
}
