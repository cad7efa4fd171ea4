//! Tests of former key names: how they load, how files are rewritten, and which keys the operator must rewrite.

use crate::config::{
    ConfigProblems, MigratedConfig, environment_overrides::apply_environment, migrate_file, migrate_text,
    yaml_text::ConfigText,
};

fn rewritten(text: &str) -> String {
    migrate_text(text).unwrap().text
}

#[test]
fn keys_get_their_current_names_and_everything_else_stays() {
    let text = "\
# The gateway.
listen: # callers
  - address: 127.0.0.1:0
    \"insecure_plaintext\": true
agents: {from: [agents], poll: 1s} # files
limits:

  concurrency: {least: 2, 'queue': 3}
";
    let expected = "\
# The gateway.
listeners: # callers
  - address: 127.0.0.1:0
    allow_plaintext: true
agents: {sources: [agents], poll_interval: 1s} # files
limits:

  concurrency: {min_concurrency: 2, max_queued: 3}
";
    let MigratedConfig { text, renamed } = migrate_text(text).unwrap();
    assert_eq!((text.as_str(), renamed), (expected, 6));
}

#[test]
fn a_current_file_is_left_as_it_is() {
    let text = "listeners: [{address: '127.0.0.1:0'}]\nagents: {sources: [a]}\n";
    let MigratedConfig { text: unchanged, renamed } = migrate_text(text).unwrap();
    assert_eq!((unchanged.as_str(), renamed), (text, 0));
}

#[test]
fn keys_that_move_into_a_section_move_together() {
    let config_with = |members: &str| format!("agents:\n  from:\n    - kind: aidip\n{members}      poll: 1s\n");
    let block = config_with("      hold_loss: 0.5 # half\n      # then\n      hold_for: 5m\n");
    let expected = "      loss_guard:\n        threshold: 0.5 # half\n      # then\n        confirm_after: 5m\n";
    assert!(rewritten(&block).contains(expected), "{}", rewritten(&block));
    let single = config_with("      hold_for: \"5m\"\n");
    assert!(rewritten(&single).contains("      loss_guard:\n        confirm_after: \"5m\"\n"));
    let flow = "agents: {from: [{kind: ard, hold_for: '5m', hold_loss: 0.5, lazy: true}]}\n";
    let expected = "{kind: ard, loss_guard: {confirm_after: '5m', threshold: 0.5}, on_demand: true}";
    assert!(rewritten(flow).contains(expected), "{}", rewritten(flow));
    let first = "agents:\n  from:\n    - hold_loss: 0.5\n      kind: ard\n";
    assert!(rewritten(first).contains("    - loss_guard:\n        threshold: 0.5\n      kind: ard\n"));
}

#[test]
fn a_key_that_cannot_be_rewritten_alone_is_named_with_its_line() {
    let separated = "agents:\n  from:\n    - hold_loss: 0.5\n      kind: ard\n      hold_for: 5m\n";
    let ConfigProblems(problems) = migrate_text(separated).unwrap_err();
    let message = problems[0].to_string();
    assert!(message.contains("line 5: agents.sources[0].hold_for: cannot be rewritten"), "{message}");
    assert!(message.contains("agents.sources[0].loss_guard.confirm_after"), "{message}");
}

#[test]
fn both_names_of_a_key_are_a_problem() {
    let ConfigProblems(problems) = migrate_text("limits:\n  most_keys: 5\n  max_tracked_keys: 6\n").unwrap_err();
    assert_eq!(problems.len(), 1);
    assert_eq!((problems[0].path.as_str(), problems[0].line), ("limits.max_tracked_keys", Some(3)));
}

#[test]
fn a_file_is_replaced_whole_and_keeps_its_permissions() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("real.yaml"), folder.path().join("gatepost.yaml"));
    std::fs::write(&file, "limits: {most_keys: 5}\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert_eq!(migrate_file(&link).unwrap(), 1);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "limits: {max_tracked_keys: 5}\n");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left behind");
    assert_eq!(migrate_file(&link).unwrap(), 0);
    assert!(migrate_file(&folder.path().join("missing.yaml")).is_err());
}

#[test]
fn the_environment_may_use_former_names_too() {
    let mut source = ConfigText::parse("listen: [{address: a}]\n").unwrap();
    let variables = [("GATEPOST__LISTEN__0__INSECURE_PLAINTEXT", "true"), ("GATEPOST__LIMITS__PER_CALLER", "1/s")];
    let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    apply_environment(&mut source, variables);
    let expected = serde_json::json!({
        "limits": {"per_caller": "1/s"},
        "listeners": [{"address": "a", "allow_plaintext": true}],
    });
    assert_eq!(source.value, expected);
    let warnings: Vec<String> = source.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].starts_with("line 1: listen: is now 'listeners'"), "{warnings:?}");
    assert!(warnings[1].contains("is now GATEPOST__LISTENERS__0__ALLOW_PLAINTEXT"), "{warnings:?}");
}

#[test]
fn keys_with_dots_stay_one_key() {
    let text = ConfigText::parse("resolver: {map: {'agent://a.example': 'https://b.example'}}\n").unwrap();
    assert_eq!(text.value["resolver"]["map"]["agent://a.example"], "https://b.example");
    assert!(text.renamed_keys().is_empty());
    let former = "names: {map: {'agent://a.example/x': 'https://b.example'}}\n";
    assert_eq!(rewritten(former), "resolver: {map: {'agent://a.example/x': 'https://b.example'}}\n");
}
