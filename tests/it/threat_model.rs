//! `docs/threat-model.md` is true: every line of its tables of inputs names tests, and they exist.

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

#[test]
fn every_input_of_the_threat_model_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read_to_string(root.join("docs/threat-model.md")).unwrap();
    let tests = all_tests();
    let rows = rows_with_tests(&document);
    assert!(rows.len() > 40, "{} rows", rows.len());
    let mut violations = Vec::new();
    for row in rows {
        let [input, cost, bound, named] = row[..] else {
            violations.push(format!("{} cells instead of 4: {row:?}", row.len()));
            continue;
        };
        if [input, cost, bound].contains(&"") {
            violations.push(format!("an empty cell: {row:?}"));
        }
        let named: Vec<&str> = named.split('`').skip(1).step_by(2).collect();
        if named.is_empty() {
            violations.push(format!("no test: {input}"));
        }
        let missing = named.iter().filter(|test| !tests.contains(**test));
        violations.extend(missing.map(|test| format!("{input}: the test {test} does not exist")));
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn rows_are_those_of_tables_with_a_column_of_tests() {
    let text = "| A | B |\n| --- | --- |\n| 1 | 2 |\n\n| In | Test |\n| --- | --- |\n| x | `t` |\n";
    assert_eq!(rows_with_tests(text), [["x", "`t`"]]);
}
