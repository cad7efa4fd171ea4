//! The configurations in `config/` and in the README: each is loaded by the real binary, the full one names every
//! setting with its default, and the schema beside them is the one that the binary prints.

use crate::support::{
    certs::Authority,
    gateway::{command, new_key},
};
use gatepost::config;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Output,
};
use tempfile::TempDir;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config")
}

/// The folder of examples with the files beside it that people bring: certificates, secrets, keys.
fn brought() -> TempDir {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    for sub in ["agents", "tls", "secrets"] {
        fs::create_dir(at.join(sub)).unwrap();
    }
    for from in [examples(), examples().join("agents")] {
        for entry in fs::read_dir(from).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                fs::copy(&path, at.join(path.strip_prefix(examples()).unwrap())).unwrap();
            }
        }
    }
    let authority = Authority::new("examples");
    for name in ["clients", "agents", "internal"] {
        fs::write(at.join(format!("tls/{name}.pem")), authority.pem()).unwrap();
    }
    authority.server(&["agents.example.com"]).write(&at.join("tls"), "server");
    authority.client("gateway.example.com").write(&at.join("tls"), "gateway");
    for name in ["agents", "pepper", "introspection"] {
        fs::write(at.join("secrets").join(name), "not a real secret\n").unwrap();
    }
    let own = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    fs::write(at.join("secrets/cards.pem"), own.serialize_pem()).unwrap();
    // RFC 8037 A.2.
    let key = json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"});
    fs::write(at.join("tls/branch.jwks.json"), json!({"keys": [key]}).to_string()).unwrap();
    new_key(at, "team-a", &[]);
    folder
}

fn check(folder: &Path, name: &str, environment: &[(&str, &str)]) -> Output {
    command().current_dir(folder).args(["check", "-c", name]).envs(environment.iter().copied()).output().unwrap()
}

#[test]
fn every_example_is_good() {
    let folder = brought();
    let names: Vec<String> = fs::read_dir(examples())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".yaml"))
        .collect();
    assert!(names.len() >= 4, "{names:?}");
    for name in names {
        let checked = check(folder.path(), &name, &[]);
        let (said, wrong) = (String::from_utf8(checked.stdout).unwrap(), String::from_utf8(checked.stderr).unwrap());
        assert!(checked.status.success(), "{name}: {wrong}");
        let agents = if name == "registry.yaml" { 0 } else { 2 };
        assert_eq!(said, format!("{name}: valid, {agents} agents\n"), "{wrong}");
        let text = fs::read_to_string(examples().join(&name)).unwrap();
        assert!(text.starts_with("# yaml-language-server: $schema=gatepost.schema.json\n"), "{name}");
    }
}

#[test]
fn an_example_whose_files_are_not_there_is_not_good() {
    let folder = brought();
    fs::remove_dir_all(folder.path().join("secrets")).unwrap();
    fs::remove_file(folder.path().join("tls/server.key")).unwrap();
    let checked = check(folder.path(), "full.yaml", &[]);
    let wrong = String::from_utf8(checked.stderr).unwrap();
    assert_eq!(checked.status.code(), Some(1), "{wrong}");
    for path in ["listen[0].tls.key", "agents.defaults", "auth.api_keys.pepper", "auth.bearer.introspection"] {
        assert!(wrong.contains(path), "{path} is not named: {wrong}");
    }
}

#[test]
fn the_environment_lies_over_the_file() {
    let folder = brought();
    let name = "GATEPOST__LIMITS__PER_CALLER";
    assert!(check(folder.path(), "minimal.yaml", &[(name, "5/s")]).status.success());
    let checked = check(folder.path(), "minimal.yaml", &[(name, "five")]);
    let wrong = String::from_utf8(checked.stderr).unwrap();
    assert!(!checked.status.success() && wrong.contains(name) && wrong.contains("limits.per_caller"), "{wrong}");
}

#[test]
fn the_schema_beside_the_examples_is_the_one_in_force() {
    let kept = fs::read_to_string(examples().join("gatepost.schema.json")).unwrap_or_default();
    let now = format!("{:#}\n", config::json_schema());
    assert!(
        kept == now,
        "config/gatepost.schema.json is stale; run: cargo run -- schema > config/gatepost.schema.json"
    );
}

/// What stands in a file, beside what the schema says of it.
struct Walk {
    schema: Value,
    seen: BTreeSet<String>,
    wrong: Vec<String>,
}

impl Walk {
    fn see(&mut self, at: &str, given: &Value) {
        let (at, schema) = self.resolve(at);
        for name in properties(&schema) {
            let (Some(given), place) = (given.get(&name), format!("{at}/properties/{name}")) else { continue };
            let usual = schema["properties"][&name]["default"].clone();
            if !matches!(usual, Value::Null | Value::Object(_) | Value::Array(_)) && usual != *given {
                self.wrong.push(format!("{place} is {given}, and its default {usual}"));
            }
            self.seen.insert(place.clone());
            self.see(&place, given);
        }
        match given {
            Value::Array(items) => items.iter().for_each(|item| self.see(&format!("{at}/items"), item)),
            Value::Object(members) if schema["additionalProperties"].is_object() => {
                members.values().for_each(|member| self.see(&format!("{at}/additionalProperties"), member));
            }
            _ => {}
        }
    }

    /// The schema at `at`, references and the choice between something and nothing followed.
    fn resolve(&self, at: &str) -> (String, Value) {
        let mut at = at.to_owned();
        loop {
            let schema = self.schema.pointer(&at).cloned().unwrap_or_default();
            match (schema["$ref"].as_str(), schema["anyOf"].is_array()) {
                (Some(to), _) => at = to.trim_start_matches('#').to_owned(),
                (None, true) => at.push_str("/anyOf/0"),
                (None, false) => return (at, schema),
            }
        }
    }
}

fn properties(schema: &Value) -> Vec<String> {
    schema["properties"].as_object().map(|all| all.keys().cloned().collect()).unwrap_or_default()
}

#[test]
fn the_full_example_names_every_setting_with_its_default() {
    let text = fs::read_to_string(examples().join("full.yaml")).unwrap();
    let given: Value = serde_saphyr::from_str(&text).unwrap();
    let mut walk = Walk { schema: config::json_schema(), seen: BTreeSet::new(), wrong: Vec::new() };
    walk.see("", &given);
    let parts = walk.schema["$defs"].as_object().unwrap().keys().map(|name| format!("/$defs/{name}"));
    let every: BTreeSet<String> = parts
        .chain([String::new()])
        .flat_map(|at| {
            properties(walk.schema.pointer(&at).unwrap()).into_iter().map(move |name| format!("{at}/properties/{name}"))
        })
        .collect();
    let missing: Vec<_> = every.difference(&walk.seen).collect();
    assert!(missing.is_empty(), "config/full.yaml leaves out {missing:#?}");
    assert!(walk.wrong.is_empty(), "config/full.yaml has other values than the defaults: {:#?}", walk.wrong);
}
