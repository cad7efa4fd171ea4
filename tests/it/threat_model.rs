//! `docs/threat-model.md` and `docs/data-handling.md` are true: every line of their tables names tests, and they exist.

use crate::requirements::all_tests;
use std::path::Path;

/// The headings of the column that names tests.
const TEST_COLUMN: &str = "Test";

/// Returns the rows of tables whose last column is `TEST_COLUMN`.
fn rows_with_tests(document: &str) -> Vec<Vec<&str>> {
    let mut in_table = false;
    let mut rows = Vec::new();
    for line in document.lines() {
        if !line.starts_with('|') {
            in_table = false;
            continue;
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if cells.last() == Some(&TEST_COLUMN) {
            in_table = true;
        } else if in_table && !line.starts_with("| ---") {
            rows.push(cells);
        }
    }
    rows
}

/// Returns what is wrong with the tables of a page: rows with an empty cell, or without tests that exist.
fn find_violations(page: &str, min_rows: usize) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read_to_string(root.join(page)).unwrap();
    let tests = all_tests();
    let rows = rows_with_tests(&document);
    assert!(rows.len() >= min_rows, "{} rows", rows.len());
    let mut violations = Vec::new();
    for row in rows {
        let [subject, first, second, named] = row[..] else {
            violations.push(format!("{} cells instead of 4: {row:?}", row.len()));
            continue;
        };
        if [subject, first, second].contains(&"") {
            violations.push(format!("an empty cell: {row:?}"));
        }
        let named: Vec<&str> = named.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            violations.push(format!("no test: {subject}"));
        }
        let missing = named.iter().filter(|test| !tests.contains(**test));
        violations.extend(missing.map(|test| format!("{subject}: the test {test} does not exist")));
    }
    violations
}

#[test]
fn every_input_of_the_threat_model_names_tests_that_exist() {
    let violations = find_violations("docs/threat-model.md", 40);
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn r101_r102_the_page_about_data_names_tests_and_settings_that_exist() {
    let violations = find_violations("docs/data-handling.md", 20);
    assert!(violations.is_empty(), "{violations:#?}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/data-handling.md")).unwrap();
    let config = std::fs::read_to_string(root.join("config/full.yaml")).unwrap();
    let config: serde_json::Value = serde_saphyr::from_str(&config).unwrap();
    let tests = all_tests();
    let code: Vec<&str> = page.split("```").step_by(2).flat_map(|text| text.split('`').skip(1).step_by(2)).collect();
    let is_name = |text: &str, more: char| {
        text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == more)
    };
    for text in code {
        if text.contains('.') && is_name(text, '.') {
            // A key of a list is one of an element at least.
            let settings = text.split('.').fold(vec![&config], |sections, key| {
                let elements =
                    |section| serde_json::Value::as_array(section).map_or(vec![section], |list| list.iter().collect());
                sections.into_iter().flat_map(elements).filter_map(|section| section.get(key)).collect()
            });
            assert!(!settings.is_empty(), "the setting {text} does not exist");
        } else if text.matches('_').count() > 2 && is_name(text, '_') {
            assert!(tests.contains(text), "the test {text} does not exist");
        }
    }
}

#[test]
fn rows_are_those_of_tables_with_a_column_of_tests() {
    let text = "| A | B |\n| --- | --- |\n| 1 | 2 |\n\n| In | Test |\n| --- | --- |\n| x | `t` |\n";
    assert_eq!(rows_with_tests(text), [["x", "`t`"]]);
}
