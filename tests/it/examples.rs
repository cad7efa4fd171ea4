//! The example configurations in `config/`: `gatepost check` accepts each of them, `full.yaml` contains every setting
//! with its default, and the JSON Schema beside them is the one that the binary prints.

use crate::support::{
    certs::CertificateAuthority,
    gateway::{gatepost_command, new_key},
};
use gatepost::config;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Output,
};
use tempfile::TempDir;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("config")
}

/// A copy of the folder of examples, with the files that operators provide: certificates, secrets and keys.
fn prepared_folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let root = folder.path();
    fs::set_permissions(root, fs::Permissions::from_mode(0o700)).unwrap();
    for name in ["agents", "tls", "secrets"] {
        fs::create_dir(root.join(name)).unwrap();
    }
    for source in [examples(), examples().join("agents")] {
        for entry in fs::read_dir(source).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                fs::copy(&path, root.join(path.strip_prefix(examples()).unwrap())).unwrap();
            }
        }
    }
    let authority = CertificateAuthority::new("examples");
    for name in ["clients", "agents", "internal"] {
        fs::write(root.join(format!("tls/{name}.pem")), authority.pem()).unwrap();
    }
    authority.server(&["agents.example.com"]).write(&root.join("tls"), "server");
    authority.client("gateway.example.com").write(&root.join("tls"), "gateway");
    for name in ["agents", "pepper", "introspection"] {
        fs::write(root.join("secrets").join(name), "not a real secret\n").unwrap();
    }
    let key_pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    fs::write(root.join("secrets/cards.pem"), key_pair.serialize_pem()).unwrap();
    // The public key of RFC 8037, A.2.
    let jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"});
    fs::write(root.join("tls/branch.jwks.json"), json!({"keys": [jwk]}).to_string()).unwrap();
    // The bridge calls with a key of the gateway.
    fs::write(root.join("secrets/agents"), new_key(root, "team-a", &[])).unwrap();
    new_key(root, "operator", &[]);
    folder
}

fn check(folder: &Path, name: &str, environment: &[(&str, &str)]) -> Output {
    gatepost_command()
        .current_dir(folder)
        .args(["check", "--strict", "-c", name])
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

#[test]
fn check_accepts_every_example() {
    let folder = prepared_folder();
    let names: Vec<String> = fs::read_dir(examples())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".yaml"))
        .collect();
    assert!(names.len() >= 4, "{names:?}");
    for name in names {
        let output = check(folder.path(), &name, &[]);
        let (stdout, stderr) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success(), "{name}: {stderr}");
        let agents = if name == "registry.yaml" { 0 } else { 2 };
        assert_eq!(stdout, format!("{name}: valid, {agents} agents\n"), "{stderr}");
        let text = fs::read_to_string(examples().join(&name)).unwrap();
        assert!(text.starts_with("# yaml-language-server: $schema=gatepost.schema.json\n"), "{name}");
    }
}

#[test]
fn doctor_finds_no_mistake_in_the_examples() {
    let folder = prepared_folder();
    let names = fs::read_dir(examples()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for name in names.filter(|name| name.ends_with(".yaml")) {
        let output = gatepost_command()
            .current_dir(folder.path())
            .args(["doctor", "--offline", "--threshold", "warning", "-c", &name])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}: {}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn check_reports_the_missing_files_of_an_example() {
    let folder = prepared_folder();
    fs::remove_dir_all(folder.path().join("secrets")).unwrap();
    fs::remove_file(folder.path().join("tls/server.key")).unwrap();
    let output = check(folder.path(), "full.yaml", &[]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for path in ["listeners[0].tls.key", "agents.defaults", "auth.api_keys.pepper", "auth.bearer.introspection"] {
        assert!(stderr.contains(path), "{path} is not reported: {stderr}");
    }
}

#[test]
fn the_environment_overrides_the_file() {
    let folder = prepared_folder();
    let name = "GATEPOST__LIMITS__PER_CALLER";
    assert!(check(folder.path(), "minimal.yaml", &[(name, "5/s")]).status.success());
    let output = check(folder.path(), "minimal.yaml", &[(name, "five")]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && stderr.contains(name) && stderr.contains("limits.per_caller"), "{stderr}");
}

#[test]
fn the_schema_file_is_current() {
    let file = fs::read_to_string(examples().join("gatepost.schema.json")).unwrap_or_default();
    let current = format!("{:#}\n", config::json_schema());
    assert!(
        file == current,
        "config/gatepost.schema.json is stale; run: cargo run -- schema > config/gatepost.schema.json"
    );
}

/// Compares a configuration with its schema: which settings it contains, and which values differ from the defaults.
struct SchemaWalk {
    schema: Value,
    /// JSON Pointers of the settings, into the schema.
    visited: BTreeSet<String>,
    differences: Vec<String>,
}

impl SchemaWalk {
    /// Visits a value whose schema is at `pointer`.
    fn visit(&mut self, pointer: &str, value: &Value) {
        let (pointer, schema) = self.resolve(pointer);
        for name in property_names(&schema) {
            let (Some(setting), setting_pointer) = (value.get(&name), format!("{pointer}/properties/{name}")) else {
                continue;
            };
            let default = schema["properties"][&name]["default"].clone();
            if !matches!(default, Value::Null | Value::Object(_) | Value::Array(_)) && default != *setting {
                self.differences.push(format!("{setting_pointer} is {setting}, but its default is {default}"));
            }
            self.visited.insert(setting_pointer.clone());
            self.visit(&setting_pointer, setting);
        }
        // The alternatives of a value with several forms have properties of their own.
        for at in 0..schema["oneOf"].as_array().map_or(0, Vec::len) {
            self.visit(&format!("{pointer}/oneOf/{at}"), value);
        }
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.visit(&format!("{pointer}/items"), item)),
            Value::Object(members) if schema["additionalProperties"].is_object() => {
                members.values().for_each(|member| self.visit(&format!("{pointer}/additionalProperties"), member));
            }
            _ => {}
        }
    }

    /// Returns the schema at `pointer` and its own pointer. Follows references, and the first alternative of a choice.
    fn resolve(&self, pointer: &str) -> (String, Value) {
        let mut pointer = pointer.to_owned();
        loop {
            let schema = self.schema.pointer(&pointer).cloned().unwrap_or_default();
            match (schema["$ref"].as_str(), schema["anyOf"].is_array()) {
                (Some(reference), _) => pointer = reference.trim_start_matches('#').to_owned(),
                (None, true) => pointer.push_str("/anyOf/0"),
                (None, false) => return (pointer, schema),
            }
        }
    }
}

fn property_names(schema: &Value) -> Vec<String> {
    schema["properties"].as_object().map(|properties| properties.keys().cloned().collect()).unwrap_or_default()
}

#[test]
fn the_full_example_contains_every_setting_with_its_default() {
    let text = fs::read_to_string(examples().join("full.yaml")).unwrap();
    let example: Value = serde_saphyr::from_str(&text).unwrap();
    let mut walk = SchemaWalk { schema: config::json_schema(), visited: BTreeSet::new(), differences: Vec::new() };
    walk.visit("", &example);
    let definitions = walk.schema["$defs"].as_object().unwrap().keys().map(|name| format!("/$defs/{name}"));
    let all_settings: BTreeSet<String> = definitions
        .chain([String::new()])
        .flat_map(|pointer| {
            let names = property_names(walk.schema.pointer(&pointer).unwrap());
            names.into_iter().map(move |name| format!("{pointer}/properties/{name}"))
        })
        .collect();
    let missing: Vec<_> = all_settings.difference(&walk.visited).collect();
    assert!(missing.is_empty(), "config/full.yaml leaves out {missing:#?}");
    assert!(walk.differences.is_empty(), "config/full.yaml differs from the defaults: {:#?}", walk.differences);
}
