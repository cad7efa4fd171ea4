//! The JSON Schema test suite, which the source distribution of the PyPI package `jsonschema` carries: its cases of
//! drafts 2020-12 and 7. Cases whose schema is refused are listed with the reason.

use gatepost::contract::CompiledSchema;
use serde_json::{Value, json};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

const VERSION: &str = "4.26.0";

/// Schemas that are refused: the draft, the file, the beginning of the description (all if empty), and the reason.
const REFUSED: &[(&str, &str, &str, &str)] = &[
    ("", "refRemote", "", REMOTE),
    ("draft2020-12", "dynamicRef", "strict-tree schema", REMOTE),
    ("draft2020-12", "dynamicRef", "tests for implementation dynamic anchor and reference link", REMOTE),
    ("draft2020-12", "dynamicRef", "$ref and $dynamicAnchor are independent of order", REMOTE),
    ("draft2020-12", "dynamicRef", "$ref to $dynamicRef finds detached $dynamicAnchor", REMOTE),
    ("draft2020-12", "vocabulary", "", "a metaschema of its own, which would have to be fetched"),
];

/// The gateway fetches nothing on behalf of a document.
const REMOTE: &str = "a reference to another document";

/// Cases whose outcome differs from the suite's: the draft, the file, the description, and the reason.
const DIFFERENT: &[(&str, &str, &str, &str)] = &[];

/// Returns the folder of the suite. Blocks during the download, which several processes may ask for.
fn suite_folder() -> PathBuf {
    let binary = std::env::current_exe().unwrap();
    let folder = binary.ancestors().nth(3).unwrap().join("tmp/pypi");
    fs::create_dir_all(&folder).unwrap();
    let lock = File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    let suite = folder.join(format!("jsonschema-{VERSION}/json/tests"));
    if !suite.exists() {
        let package = format!("jsonschema=={VERSION}");
        let download = ["download", "--quiet", "--no-deps", "--no-binary", ":all:", &package, "--dest", "."];
        run(Command::new("pip3").args(download).current_dir(&folder));
        run(Command::new("tar").args(["-xzf", &format!("jsonschema-{VERSION}.tar.gz")]).current_dir(&folder));
    }
    suite
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|why| panic!("{command:?}: {why}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn is_listed(list: &[(&str, &str, &str, &str)], draft: &str, file: &str, description: &str) -> bool {
    list.iter().any(|(listed_draft, listed_file, start, _)| {
        ["", draft].contains(listed_draft) && *listed_file == file && description.starts_with(start)
    })
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files
}

/// Returns what differs from the suite, and the number of cases.
fn differences(draft: &str, metaschema: &str) -> (Vec<String>, usize) {
    let (mut differences, mut cases) = (Vec::new(), 0);
    for path in files(&suite_folder().join(draft)) {
        let file = path.file_stem().unwrap().to_str().unwrap();
        let groups: Vec<Value> = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        for group in groups {
            let mut schema = group["schema"].clone();
            if let Value::Object(members) = &mut schema {
                members.entry("$schema").or_insert_with(|| json!(metaschema));
            }
            let description = group["description"].as_str().unwrap();
            let is_refusal_listed = is_listed(REFUSED, draft, file, description);
            let compiled = match CompiledSchema::compile(&schema) {
                Ok(_) if is_refusal_listed => {
                    differences.push(format!("{draft} {file} {description:?}: is listed as refused, but compiles"));
                    continue;
                }
                Ok(compiled) => compiled,
                Err(_) if is_refusal_listed => continue,
                Err(why) => {
                    differences.push(format!("{draft} {file} {description:?}: refused: {why}"));
                    continue;
                }
            };
            for case in group["tests"].as_array().unwrap() {
                cases += 1;
                let violations = compiled.validate(&case["data"]);
                let is_different = violations.is_empty() != case["valid"];
                let name = format!("{description}: {}", case["description"].as_str().unwrap());
                if is_different != is_listed(DIFFERENT, draft, file, &name) {
                    differences.push(format!("{draft} {file} {name:?}: {violations:?}"));
                }
            }
        }
    }
    (differences, cases)
}

#[test]
fn r127_the_test_suite_of_json_schema_has_the_same_results() {
    let drafts = [
        ("draft2020-12", "https://json-schema.org/draft/2020-12/schema"),
        ("draft7", "http://json-schema.org/draft-07/schema#"),
    ];
    for (draft, metaschema) in drafts {
        let (differences, cases) = differences(draft, metaschema);
        println!("{draft}: {cases} cases");
        assert!(differences.is_empty(), "{}", differences.join("\n"));
        assert!(cases > 800, "{cases}");
    }
}
