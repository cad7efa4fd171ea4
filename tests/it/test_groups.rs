//! Tests that need other programs or the network stand in modules named `external`, which `make test-unit` leaves out.
//! For the integration tests the compiler ensures most of this: the support that starts servers is private to the
//! module `external`.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The programs that a test outside of `external` may start: a shell and what a build needs anyway (curl).
const ALLOWED_PROGRAMS: [&str; 2] = ["\"sh\"", "\"true\""];

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// The programs that `source` starts outside of a module `external`, as they are written there.
fn started_programs(source: &str) -> Vec<&str> {
    // A module `external` within a file is its last item.
    let outside = source.split("\nmod external {").next().unwrap();
    let calls = outside.split("Command::new(").skip(1);
    calls.map(|rest| rest.split(')').next().unwrap()).filter(|program| !ALLOWED_PROGRAMS.contains(program)).collect()
}

#[test]
fn tests_that_start_other_programs_are_in_modules_named_external() {
    for file in rust_files(&repository().join("src")) {
        let path = file.strip_prefix(repository()).unwrap().display().to_string();
        if path.contains("/tests") && !path.contains("/external") {
            let source = fs::read_to_string(&file).unwrap();
            assert_eq!(started_programs(&source), Vec::<&str>::new(), "{path}: move the test to a module `external`");
        }
    }
    for file in rust_files(&repository().join("tests/it")) {
        let path = file.strip_prefix(repository()).unwrap().display().to_string();
        if !path.contains("/external/") && !path.ends_with("test_groups.rs") {
            let source = fs::read_to_string(&file).unwrap();
            let mut programs = started_programs(&source);
            // The gateway itself, and a program that a test names by a variable: the gateway again.
            programs.retain(|program| !program.starts_with("env!(\"CARGO_BIN_EXE_gatepost\"") && *program != "binary");
            assert_eq!(programs, Vec::<&str>::new(), "{path}: move the test to the module `external`");
        }
    }
}

#[test]
fn the_commands_select_tests_by_the_name_of_the_module() {
    for (file, filter) in [
        ("Makefile", "not test(/(^|::)external::/)"),
        ("Makefile", "--skip external::"),
        (".config/nextest.toml", "test(/(^|::)external::/)"),
        ("Makefile", "--skip external::peers::large::"),
        (".config/nextest.toml", "default-filter = 'not test(/^external::peers::large::/)'"),
    ] {
        let text = fs::read_to_string(repository().join(file)).unwrap();
        assert!(text.contains(filter), "{file} does not contain {filter}");
    }
}

#[test]
fn a_program_outside_of_external_is_found() {
    let source =
        "fn a() { Command::new(\"sh\"); Command::new(\"npm\") }\n\nmod external {\n    Command::new(\"valgrind\")\n}";
    assert_eq!(started_programs(source), ["\"npm\""]);
}
