//! The JSON Schema test suite, which the source distribution of the PyPI package `jsonschema` carries: all cases of
//! drafts 4, 6, 7, 2019-09 and 2020-12, the optional ones and those of formats too. What is left out is listed with the
//! reason.

use json_schema::{CompileOptions, Draft, FormatAssertion, Program, Tape, tape::TapeBounds};
use serde_json::{Value, json, value::RawValue};
use std::{
    collections::HashMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

const VERSION: &str = "4.26.0";

/// The drafts: the folder, the metaschema, and the number of cases in the pinned version.
const DRAFTS: [(&str, Draft, &str, usize); 5] = [
    ("draft4", Draft::Draft4, "http://json-schema.org/draft-04/schema#", 863),
    ("draft6", Draft::Draft6, "http://json-schema.org/draft-06/schema#", 1149),
    ("draft7", Draft::Draft7, "http://json-schema.org/draft-07/schema#", 1465),
    ("draft2019-09", Draft::Draft201909, "https://json-schema.org/draft/2019-09/schema", 1864),
    ("draft2020-12", Draft::Draft202012, "https://json-schema.org/draft/2020-12/schema", 1906),
];

/// Cases that are left out: the draft (each if empty), the file, and the beginning of the description (each if empty).
struct Exception {
    draft: &'static str,
    file: &'static str,
    start: &'static str,
    reason: &'static str,
}

const fn exception(draft: &'static str, file: &'static str, start: &'static str, reason: &'static str) -> Exception {
    Exception { draft, file, start, reason }
}

impl Exception {
    fn covers(&self, draft: &str, file: &str, description: &str) -> bool {
        ["", draft].contains(&self.draft) && self.file == file && description.starts_with(self.start)
    }
}

/// The crate does no I/O.
const REMOTE: &str = "a reference to another document";
const METASCHEMA: &str = "a metaschema of its own, which would have to be fetched";

/// Schemas of which a keyword is not in force.
const NOT_IN_FORCE: &[Exception] = &[
    exception("", "refRemote", "", REMOTE),
    exception("", "optional/cross-draft", "refs to", REMOTE),
    exception("draft2020-12", "dynamicRef", "strict-tree schema", REMOTE),
    exception("draft2020-12", "dynamicRef", "tests for implementation dynamic anchor and reference link", REMOTE),
    exception("draft2020-12", "dynamicRef", "$ref and $dynamicAnchor are independent of order", REMOTE),
    exception("draft2020-12", "dynamicRef", "$ref to $dynamicRef finds detached $dynamicAnchor", REMOTE),
    exception("draft2020-12", "optional/format-assertion", "", METASCHEMA),
    exception("", "vocabulary", "", METASCHEMA),
];

/// Cases whose outcome differs from the suite's.
const DIFFERENT: &[Exception] = &[];

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

/// Returns the files of a draft with their names below its folder, without the extension.
fn files(folder: &Path) -> Vec<(String, PathBuf)> {
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(next) = folders.pop() {
        for path in fs::read_dir(next).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "json") {
                let name = path.strip_prefix(folder).unwrap().with_extension("");
                files.push((name.to_str().unwrap().to_owned(), path));
            }
        }
    }
    files.sort();
    files
}

/// Members of a group or a case with their texts, so that numbers keep all digits.
type Members<'a> = HashMap<&'a str, &'a RawValue>;

fn parse<'a, T: serde::Deserialize<'a>>(members: &Members<'a>, name: &str) -> T {
    serde_json::from_str(members[name].get()).unwrap()
}

/// What was found in the cases of a draft.
#[derive(Default)]
struct Findings {
    /// Each with the draft, the file, the group, the case, what is expected and what happened, separated by tabs.
    differences: Vec<String>,
    cases: usize,
    left_out: usize,
}

fn check_draft(folder: &str, draft: Draft, metaschema: &str) -> Findings {
    let mut findings = Findings::default();
    for (file, path) in files(&suite_folder().join(folder)) {
        let text = fs::read_to_string(&path).unwrap();
        let groups: Vec<Members<'_>> = serde_json::from_str(&text).unwrap();
        let formats = if file.contains("/format/") { FormatAssertion::Always } else { FormatAssertion::ByDraft };
        let options = CompileOptions { draft, formats, ..CompileOptions::default() };
        for group in groups {
            check_group(&mut findings, folder, &file, metaschema, &group, &options);
        }
    }
    findings
}

fn check_group(
    findings: &mut Findings,
    draft: &str,
    file: &str,
    metaschema: &str,
    group: &Members<'_>,
    options: &CompileOptions,
) {
    let mut schema: Value = parse(group, "schema");
    if let Value::Object(members) = &mut schema {
        members.entry("$schema").or_insert_with(|| json!(metaschema));
    }
    let description: String = parse(group, "description");
    let cases: Vec<Members<'_>> = parse(group, "tests");
    findings.cases += cases.len();
    let program = Program::compile(&Arc::new(schema), options);
    let why_not = match &program {
        Ok(program) if program.unsupported().is_empty() => None,
        Ok(program) => Some(format!("{:?}", program.unsupported())),
        Err(error) => Some(error.to_string()),
    };
    let is_listed = NOT_IN_FORCE.iter().any(|exception| exception.covers(draft, file, &description));
    if why_not.is_some() != is_listed {
        findings.differences.push(format!("{draft}\t{file}\t{description}\t\tin force: {is_listed}\t{why_not:?}"));
    }
    let Some(program) = program.ok().filter(|_| why_not.is_none()) else {
        findings.left_out += cases.len();
        return;
    };
    for case in &cases {
        let tape = Tape::parse(case["data"].get().to_owned().into(), &TapeBounds::default()).unwrap();
        let expected: bool = parse(case, "valid");
        let violations = program.violations(&tape);
        let is_valid = program.is_valid(&tape);
        let name = format!("{description}: {}", parse::<String>(case, "description"));
        let is_listed = DIFFERENT.iter().any(|exception| exception.covers(draft, file, &name));
        findings.left_out += usize::from(is_listed);
        if (is_valid != expected) != is_listed || violations.is_empty() != is_valid {
            findings
                .differences
                .push(format!("{draft}\t{file}\t{name}\texpected {expected}\tis {is_valid}\t{violations:?}"));
        }
    }
}

#[test]
fn r127_the_official_suite_has_the_same_results() {
    let mut differences = Vec::new();
    for (folder, draft, metaschema, expected_cases) in DRAFTS {
        let findings = check_draft(folder, draft, metaschema);
        println!("{folder}: {} cases, {} left out", findings.cases, findings.left_out);
        assert_eq!(findings.cases, expected_cases, "{folder}");
        differences.extend(findings.differences);
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn each_exception_has_a_reason() {
    for exception in NOT_IN_FORCE.iter().chain(DIFFERENT) {
        assert!([REMOTE, METASCHEMA].contains(&exception.reason), "{}: {}", exception.file, exception.reason);
    }
}
