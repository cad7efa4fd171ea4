//! Parsing of the configuration: valid settings, and one broken snippet for each kind of problem.

use super::*;
use crate::registry;
use std::path::Path;

const REQUIRED_SECTIONS: &str = "\
listeners:
  - address: 127.0.0.1:0
agents:
  sources: [agents.json]
";

fn parse(text: &str, variables: &[(&str, &str)]) -> Result<LoadedConfig, ConfigProblems> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    LoadedConfig::parse(text, Path::new("/etc/gatepost"), variables)
}

/// Parses the required sections, which have four lines, followed by `more`.
fn parse_with(more: &str) -> Result<LoadedConfig, ConfigProblems> {
    parse(&format!("{REQUIRED_SECTIONS}{more}"), &[])
}

fn expect_problems(result: Result<LoadedConfig, ConfigProblems>) -> Vec<(String, Option<u64>, String)> {
    let ConfigProblems(problems) = result.expect_err("the configuration is broken");
    problems.into_iter().map(|problem| (problem.path, problem.line, problem.message)).collect()
}

#[test]
fn a_minimal_configuration_has_four_lines_and_denies_by_default() {
    let file = parse_with("").unwrap().config;
    assert_eq!(file.access.grants, []);
    assert_eq!((file.auth.api_keys, file.auth.bearer, file.auth.mtls), (None, None, None));
    assert!(file.admin.address.ip().is_loopback());
    assert_eq!(file.network.allowed_addresses, []);
}

#[test]
fn every_kind_of_problem_is_reported_with_its_path_its_line_and_the_required_form() {
    let broken = [
        ("limits:\n  per_caler: 1/s\n", "limits.per_caler", 6, "expected one of 'per_address', 'per_caller'"),
        ("nonsense: 1\n", "nonsense", 5, "unknown field"),
        ("contract:\n  heavy_checks: {}\n", "contract.heavy_checks", 6, "has ended: contract.suspended_checks"),
        ("limits:\n  shed_above: 20ms\n", "limits.shed_above", 6, "is now 'limits.max_scheduling_delay'"),
        ("names: {}\n", "names", 5, "is now 'resolver'"),
        ("limits:\n  per_caller: 10\n", "limits.per_caller", 6, "must be a string, not this number"),
        ("limits:\n  per_caller: [1/s]\n", "limits.per_caller", 6, "must be a string, not a list"),
        ("limits: 3\n", "limits", 5, "must be an object, not this number"),
        ("limits:\n", "limits", 5, "is empty"),
        ("limits:\n  per_caller: 0/s\n", "limits.per_caller", 6, "which is at least 1 (write a rate such as 1/s"),
        ("limits:\n  per_caller: ten a second\n", "limits.per_caller", 6, "10/s, 600/min"),
        ("limits:\n  max_tracked_keys: -1\n", "limits.max_tracked_keys", 6, "must be an integer"),
        ("limits:\n  max_tracked_keys: 1.5\n", "limits.max_tracked_keys", 6, "must be an integer"),
        ("limits:\n  max_tracked_keys: 0\n", "limits.max_tracked_keys", 6, "at least 1"),
        ("shutdown:\n  drain_timeout: 5\n", "shutdown.drain_timeout", 6, "must be a string"),
        (
            "shutdown:\n  drain_timeout: 5 seconds\n",
            "shutdown.drain_timeout",
            6,
            "write a number and a unit: 250ms, 5s",
        ),
        ("shutdown:\n  drain_timeout: 99999999d\n", "shutdown.drain_timeout", 6, "at most ten years"),
        ("contract:\n  max_body_size: 1MB\n", "contract.max_body_size", 6, "512B, 64KiB, 1MiB"),
        ("contract:\n  input: sometimes\n", "contract.input", 6, "expected one of 'enforce', 'report', 'off'"),
        (
            "network:\n  allowed_addresses:\n    - 10.0.0.0/8\n    - ten\n",
            "network.allowed_addresses[1]",
            8,
            "10.0.0.0/8",
        ),
        ("admin:\n  address: localhost\n", "admin.address", 6, "127.0.0.1:8080"),
        ("access_log:\n  output: ''\n", "access_log.output", 6, "stdout, stderr, off or a path"),
        ("auth:\n  api_keys:\n    files: ['']\n", "auth.api_keys.files[0]", 7, "must not be empty"),
        (
            "auth:\n  bearer:\n    issuers:\n      - {issuer: x, audience: [a], algorithms: [HS256]}\n",
            "auth.bearer.issuers[0].algorithms[0]",
            8,
            "RS256",
        ),
        (
            "auth:\n  bearer:\n    issuers:\n      - {issuer: x, algorithms: [ES256]}\n",
            "auth.bearer.issuers[0]",
            8,
            "'audience' is missing",
        ),
    ];
    for (more, path, line, expected) in broken {
        let problems = expect_problems(parse_with(more));
        assert_eq!(problems.len(), 1, "{more}: {problems:?}");
        let (actual_path, actual_line, message) = &problems[0];
        assert_eq!((actual_path.as_str(), *actual_line), (path, Some(line)), "{more}: {message}");
        assert!(message.contains(expected), "{more}: {message}");
    }
}

#[test]
fn missing_required_settings_are_reported_even_for_an_empty_file() {
    for text in ["", "\n# nothing\n", "---\n# nothing\n"] {
        let messages: Vec<String> =
            expect_problems(parse(text, &[])).into_iter().map(|(_, _, message)| message).collect();
        assert_eq!(messages.len(), 1, "{text:?}: {messages:?}");
        assert!(messages[0].contains("'listeners' is missing"));
    }
    for text in ["[1, 2]", "word", "7"] {
        let problems = expect_problems(parse(text, &[]));
        assert!(problems.len() == 1 && problems[0].2.contains("must be an object"), "{text}: {problems:?}");
    }
    let problems = expect_problems(parse("listeners: []\nagents: {sources: []}\n", &[]));
    // An empty agents.sources is no problem of form: `app` reports it, unless there is a registry.
    assert_eq!(
        problems.iter().map(|(path, line, _)| (path.as_str(), *line)).collect::<Vec<_>>(),
        [("listeners", Some(1))]
    );
}

#[test]
fn all_problems_are_reported_at_once_in_file_order() {
    let text = "\
listeners:
  - address: nonsense
    tsl: {}
  - adress: 127.0.0.1:0
  - address: 127.0.0.1:0
    tls: {certificate: a.pem, key: a.key, min_version: '1.1'}
agents:
  sources: []
  poll_interval: often
  rules:
    - {agents: [a], rate_limit: 0/s}
    - {agents: [b]}
    - {agents: [], max_concurrency: 0}
auth:
  api_keys: {pepper: hunter2, haeder: X}
limits: {per_agent: 0/s, per_caller: 5}
more: true
";
    let problems = expect_problems(parse(text, &[]));
    let positions: Vec<_> = problems.iter().map(|(path, line, _)| (path.as_str(), line.unwrap())).collect();
    let expected = [
        ("listeners[0].address", 2),
        ("listeners[0].tsl", 3),
        ("listeners[1].adress", 4),
        ("listeners[2].tls.min_version", 6),
        ("agents.poll_interval", 9),
        ("agents.rules[0].rate_limit", 11),
        ("agents.rules[2].max_concurrency", 13),
        ("auth.api_keys.pepper", 15),
        ("auth.api_keys.haeder", 15),
        ("limits.per_agent", 16),
        ("limits.per_caller", 16),
        ("more", 17),
    ];
    for position in expected {
        assert!(positions.contains(&position), "{position:?} is missing in {problems:#?}");
    }
    assert!(positions.is_sorted_by_key(|(_, line)| *line), "{positions:?}");
}

#[test]
fn r130_a_literal_secret_is_refused_and_not_repeated() {
    for secret in ["hunter2", "'12345678'", "12345678", "[hunter2]", "{value: hunter2}", "true", "'env:'", "'file:'"] {
        let problems = expect_problems(parse_with(&format!("auth:\n  api_keys:\n    pepper: {secret}\n")));
        assert_eq!((problems[0].0.as_str(), problems[0].1), ("auth.api_keys.pepper", Some(7)), "{secret}");
        assert!(
            !format!("{problems:?}").contains("hunter2") && !format!("{problems:?}").contains("12345678"),
            "{problems:?}"
        );
    }
    parse_with("auth:\n  api_keys:\n    pepper: env:PEPPER\n").unwrap();
    parse_with("auth:\n  api_keys:\n    pepper: file:/run/pepper\n").unwrap();
}

#[test]
fn invalid_yaml_is_reported_with_its_line() {
    let broken = [
        ("listeners: [\n", "not YAML"),
        ("listeners:\n  - a\n b: c\n", "not YAML"),
        ("listeners: []\nlisteners: []\n", "duplicate mapping key: listeners"),
        ("limits: {per_agent: 1/s, per_agent: 2/s}\n", "duplicate mapping key: per_agent"),
        ("a: 1\n---\nb: 2\n", "multiple YAML documents"),
        ("a: *nowhere\n", "not YAML"),
        ("a: \"\\q\"\n", "not YAML"),
    ];
    for (text, expected) in broken {
        let problems = expect_problems(parse(text, &[]));
        assert_eq!(problems.len(), 1, "{text}");
        assert!(problems[0].1.is_some() && problems[0].2.contains(expected), "{text}: {problems:?}");
        assert!(!problems[0].2.contains("Options"), "{problems:?}");
    }
}

#[test]
fn the_environment_overrides_the_file_and_problems_name_the_variable() {
    let variables = [
        ("GATEPOST__LIMITS__PER_CALLER", "7/s"),
        ("GATEPOST__LISTENERS__0__ADDRESS", "127.0.0.1:81"),
        ("GATEPOST__LISTENERS__1__ADDRESS", "127.0.0.1:82"),
        ("GATEPOST__AGENTS__SOURCES", "[\"a\", \"b\"]"),
        ("GATEPOST__CONTRACT__BATCH__MAX_CONCURRENCY", "3"),
        ("GATEPOST__LIMITS__PER_ADDRESS", "null"),
        ("GATEPOST__LIMITS__TIERS__GOLD__PER_CALLER", "9/s"),
        ("GATEPOST_LOG", "debug"),
        ("OTHER__LIMITS__PER_CALLER", "1/s"),
    ];
    let text = format!("{REQUIRED_SECTIONS}limits:\n  per_caller: 1/s\n  tiers:\n    Gold: {{per_caller: 2/s}}\n");
    let file = parse(&text, &variables).unwrap().config;
    assert_eq!(file.limits.per_caller.unwrap().count.get(), 7);
    assert_eq!(file.listeners.iter().map(|listener| listener.address.port()).collect::<Vec<_>>(), [81, 82]);
    assert_eq!(file.agents.sources.len(), 2);
    assert_eq!(file.contract.batch.max_concurrency, 3);
    assert_eq!(file.limits.per_address, None);
    assert_eq!(file.limits.tiers["Gold"].per_caller.unwrap().count.get(), 9);
    let wrong = [
        ("GATEPOST__LIMITS__PER_CALLER", "lots", "limits.per_caller"),
        ("GATEPOST__LISTENERS__0__ADDRESS", "x", "listeners[0].address"),
        ("GATEPOST__NOPE", "1", "nope"),
        ("GATEPOST__LISTENERS__ADDRESS", "127.0.0.1:0", "listeners"),
        ("GATEPOST__LIMITS", "5", "limits"),
    ];
    for (name, value, path) in wrong {
        let problems = expect_problems(parse(&text, &[(name, value)]));
        assert_eq!((problems.len(), problems[0].0.as_str(), problems[0].1), (1, path, None), "{name}: {problems:?}");
        assert!(problems[0].2.contains(name), "{problems:?}");
    }
}

#[test]
fn relative_paths_are_resolved_against_the_folder_of_the_file() {
    let more = "limits: {quota_state_file: quotas.json}\naccess_log: {output: access.log}\nauth: {api_keys: {files: [keys, /abs/keys], pepper: 'file:pepper'}}\n";
    let file = parse_with(more).unwrap().config;
    let in_folder = |name: &str| Path::new("/etc/gatepost").join(name);
    assert_eq!(file.agents.sources, [registry::SourceConfig::Files(in_folder("agents.json").into())]);
    assert_eq!(file.agents.last_known_good.as_deref(), Some(&*in_folder("gatepost.state")));
    assert_eq!(file.limits.quota_state_file.as_deref(), Some(&*in_folder("quotas.json")));
    assert_eq!(String::from(file.access_log.output), "/etc/gatepost/access.log");
    let keys = file.auth.api_keys.unwrap();
    assert_eq!(
        keys.files.iter().map(|file| file.to_path_buf()).collect::<Vec<_>>(),
        [in_folder("keys"), "/abs/keys".into()]
    );
    assert_eq!(keys.pepper.unwrap().to_string(), "file:/etc/gatepost/pepper");
}

#[test]
fn problems_found_after_parsing_are_located_in_the_file() {
    let loaded = parse_with("limits:\n  tiers:\n    gold: {}\n").unwrap();
    let problems = vec![
        "limits.tiers.gold: is odd".to_owned(),
        "limits.quota: is absent".to_owned(),
        "something else: happened".to_owned(),
    ];
    let ConfigProblems(located) = loaded.locate_problems(problems);
    assert_eq!(located.iter().map(|problem| problem.line).collect::<Vec<_>>(), [Some(7), Some(6), Some(1)]);
    assert_eq!(located[0].to_string(), "line 7: limits.tiers.gold: is odd");
}

#[test]
fn changes_that_need_a_restart_are_detected() {
    let file = |more: &str| parse_with(more).unwrap().config;
    assert_eq!(file("limits: {per_caller: 1/s}\n").changed_startup_sections(&file("")), [""; 0]);
    assert_eq!(
        file("admin: {address: '127.0.0.1:1'}\nshutdown: {drain_timeout: 1s}\n").changed_startup_sections(&file("")),
        ["admin", "shutdown"]
    );
    // The share of an address in the connections, unless it is set.
    assert_eq!(file("limits: {max_share: 0.2}\n").changed_startup_sections(&file("")), ["connections"]);
    let set = "connections: {max_connections_per_address: 9}\n";
    assert_eq!(file(&format!("limits: {{max_share: 0.2}}\n{set}")).changed_startup_sections(&file(set)), [""; 0]);
}

#[test]
fn the_schema_agrees_with_the_validation() {
    let schema = json_schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let check = crate::contract::CompiledSchema::compile(&schema).unwrap();
    let value = |more: &str| yaml_text::ConfigText::parse(&format!("{REQUIRED_SECTIONS}{more}")).unwrap().value;
    for valid in ["", "limits: {per_address: null, per_caller: 10/s burst 20}\n", "auth: {mtls: {}}\n"] {
        assert_eq!(check.validate_up_to(&value(valid), 9), [], "{valid}");
    }
    for invalid in [
        "limits: {per_caler: 1/s}\n",
        "limits: {per_caller: x}\n",
        "nope: 1\n",
        "auth: {api_keys: {pepper: hunter2}}\n",
    ] {
        assert_ne!(check.validate_up_to(&value(invalid), 9), [], "{invalid}");
    }
    let text = schema.to_string();
    for field in ["per_caller", "drain_timeout", "grants", "issuers", "client_ca"] {
        assert!(text.contains(&format!("\"{field}\"")), "{field}");
    }
}

/// Parses a configuration with one remote source, which begins in line 4.
fn parse_with_source(members: &str) -> Result<LoadedConfig, ConfigProblems> {
    parse(&format!("listeners: [{{address: '127.0.0.1:0'}}]\nagents:\n  sources:\n    - {members}\n"), &[])
}

#[test]
fn a_remote_source_is_an_object_whose_settings_have_defaults() {
    let file = parse_with_source("{kind: aidip, url: 'https://registry.example.com/agents'}").unwrap().config;
    let registry::SourceConfig::Remote(remote) = &file.agents.sources[0] else { panic!("{:?}", file.agents.sources) };
    assert_eq!(
        (remote.kind, remote.effective_name().as_str()),
        (registry::SourceKind::Aidip, "aidip:registry.example.com")
    );
    assert_eq!((remote.poll_interval.to_string(), remote.loss_guard.threshold), ("30s".to_owned(), 0.5));
    assert_eq!(remote.max_staleness.unwrap().to_string(), "1d");
    assert!(parse_with_source("{kind: ard, url: 'https://a.example', max_staleness: null}").is_ok());
}

#[test]
fn a_broken_source_is_reported_with_its_path() {
    let broken = [
        ("{kind: aidip}", "agents.sources[0]", "'url' is missing"),
        ("{url: 'https://a.example'}", "agents.sources[0]", "'kind' is missing"),
        ("{kind: gopher, url: 'https://a.example'}", "agents.sources[0].kind", "'aidip'"),
        ("{kind: ard, url: 'https://a.example', pol: 1s}", "agents.sources[0].pol", "'poll_interval'"),
        ("{kind: ard, url: 'https://a.example', poll_interval: often}", "agents.sources[0].poll_interval", "250ms"),
        (
            "{kind: ard, url: 'https://a.example', credential: {bearer: hunter2}}",
            "agents.sources[0].credential.bearer",
            "env:",
        ),
        (
            "{kind: ard, url: 'https://a.example', credential: {token: 'env:X'}}",
            "agents.sources[0].credential.token",
            "'bearer'",
        ),
        ("7", "agents.sources[0]", "a path, or an object with kind and url"),
        ("''", "agents.sources[0]", "must not be empty"),
    ];
    for (members, path, expected) in broken {
        let problems = expect_problems(parse_with_source(members));
        let (actual_path, _, message) = &problems[0];
        assert_eq!((actual_path.as_str(), problems.len()), (path, 1), "{members}: {problems:?}");
        assert!(message.contains(expected) && !message.contains("hunter2"), "{members}: {message}");
    }
}
