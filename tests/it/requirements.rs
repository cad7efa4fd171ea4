//! `docs/REQUIREMENTS.md` is true: its clauses have numbers without gaps, every clause that a comment or a test cites
//! is in it, and the tests that it names exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The folders in which citations and tests are searched.
const CODE_FOLDERS: &[&str] = &["src", "tests", "loadtest"];
/// The documents in which citations are searched, beside those of `docs/`.
const DOCUMENTS: &[&str] = &["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "loadtest/README.md"];

#[derive(Debug, PartialEq, Clone, Copy)]
enum ClauseState {
    Implemented,
    Partly,
    Open,
    NotOurs,
}

/// The beginning of the column "State", and whether a reason must follow.
const STATES: &[(&str, ClauseState, bool)] = &[
    ("implemented", ClauseState::Implemented, false),
    ("partly: ", ClauseState::Partly, true),
    ("open: ", ClauseState::Open, true),
    ("not the gateway's: ", ClauseState::NotOurs, true),
];

const LEVELS: &[&str] = &["MUST", "SHOULD", "MAY", "must", "should", "may", "described"];

/// One row of the document's tables.
#[derive(Debug)]
struct Clause {
    number: u32,
    state: ClauseState,
    tests: Vec<String>,
}

/// One file: its path from the root of the repository, and its text.
struct TextFile {
    path: String,
    text: String,
}

/// Parses every row that begins with `| R` and a digit. Violations of the row format are the error.
fn parse_clauses(document: &str) -> Result<Vec<Clause>, Vec<String>> {
    let is_clause = |rest: &str| rest.starts_with(|first: char| first.is_ascii_digit());
    let rows = document.lines().filter(|line| line.strip_prefix("| R").is_some_and(is_clause));
    let (mut clauses, mut violations) = (Vec::new(), Vec::new());
    for row in rows {
        match parse_row(row) {
            Ok(clause) => clauses.push(clause),
            Err(why) => violations.push(format!("{why}: {row}")),
        }
    }
    if violations.is_empty() { Ok(clauses) } else { Err(violations) }
}

fn parse_row(row: &str) -> Result<Clause, String> {
    let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
    let [number, level, requirement, state, tests] = cells[..] else {
        return Err(format!("{} cells instead of 5", cells.len()));
    };
    let number = number.strip_prefix('R').and_then(|digits| digits.parse().ok()).ok_or("no number")?;
    if let Some(level) = level.split(", ").find(|level| !LEVELS.contains(level)) {
        return Err(format!("'{level}' is not a level"));
    }
    if requirement.is_empty() {
        return Err("the requirement is empty".to_owned());
    }
    let (start, clause_state, needs_reason) =
        *STATES.iter().find(|(start, ..)| state.starts_with(start)).ok_or("no state with its reason")?;
    let reason = &state[start.len()..];
    if needs_reason == reason.is_empty() {
        return Err("a state must have a reason, and `implemented` none".to_owned());
    }
    let tests = tests.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    Ok(Clause { number, state: clause_state, tests })
}

/// Numbers that are missing, repeated or out of range. Rows may be in any order.
fn number_violations(clauses: &[Clause]) -> Vec<String> {
    let mut rows_by_number: BTreeMap<u32, usize> = BTreeMap::new();
    for clause in clauses {
        *rows_by_number.entry(clause.number).or_default() += 1;
    }
    let highest = rows_by_number.keys().next_back().copied().unwrap_or(0);
    let count_of = |number: u32| rows_by_number.get(&number).copied().unwrap_or(0);
    (0..=highest.max(1))
        .filter(|number| count_of(*number) != usize::from(*number > 0))
        .map(|number| format!("R{number} has {} rows", count_of(number)))
        .collect()
}

/// Clauses without a test that need one, named tests that do not exist, and clauses that have a test of their number
/// although the document says that nothing is implemented.
fn test_violations(clauses: &[Clause], tests: &BTreeSet<String>) -> Vec<String> {
    let mut violations = Vec::new();
    for clause in clauses {
        let number = clause.number;
        let has_code = matches!(clause.state, ClauseState::Implemented | ClauseState::Partly);
        if has_code && clause.tests.is_empty() {
            violations.push(format!("R{number} names no test"));
        }
        for test in clause.tests.iter().filter(|test| !tests.contains(*test)) {
            violations.push(format!("R{number} names the test {test}, which does not exist"));
        }
        let own_test = tests.iter().find(|test| clauses_in_name(test).contains(&number));
        if let Some(test) = own_test.filter(|_| !has_code) {
            violations.push(format!("R{number} is open or not the gateway's, but has the test {test}"));
        }
    }
    violations
}

/// Citations of clauses that are not in the document.
fn citation_violations(files: &[TextFile], clauses: &[Clause]) -> Vec<String> {
    let known: BTreeSet<u32> = clauses.iter().map(|clause| clause.number).collect();
    let mut violations = Vec::new();
    for file in files {
        let in_text =
            file.text.lines().zip(1..).flat_map(|(line, at)| {
                cited_clauses(line).into_iter().map(move |number| (number, format!("line {at}")))
            });
        let in_names = test_names(&file.text).into_iter().flat_map(|test| {
            clauses_in_name(&test).into_iter().map(move |number| (number, test.clone())).collect::<Vec<_>>()
        });
        for (number, place) in in_text.chain(in_names).filter(|(number, _)| !known.contains(number)) {
            violations.push(format!("{}: {place} cites R{number}", file.path));
        }
    }
    violations
}

/// The clauses that a line cites: `R` and one to three digits, as a word.
fn cited_clauses(line: &str) -> Vec<u32> {
    // Most lines cite nothing, and a search for one character is quick.
    if !line.contains('R') {
        return Vec::new();
    }
    let is_word_character = |character: char| character.is_alphanumeric() || character == '_';
    line.split(|character| !is_word_character(character))
        .filter_map(|word| word.strip_prefix('R'))
        .filter(|digits| digits.len() <= 3 && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|digits| digits.parse().ok())
        .collect()
}

/// The clauses in the name of a test: `r27_r33_an_invocation_…` has 27 and 33.
fn clauses_in_name(test: &str) -> Vec<u32> {
    let numbers = test.split('_').filter_map(|word| word.strip_prefix('r'));
    numbers.filter_map(|digits| digits.parse().ok()).collect()
}

/// The functions of a source that have an attribute `#[test]` or `#[tokio::test]`.
fn test_names(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let (mut is_test, mut is_in_attribute) = (false, false);
    for line in source.lines().map(str::trim) {
        if is_in_attribute {
            is_in_attribute = !line.ends_with(']');
        } else if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            is_in_attribute = !line.ends_with(']');
        } else if !line.is_empty() && !line.starts_with("//") {
            let name = line.split("fn ").nth(1).and_then(|rest| rest.split(['(', '<']).next());
            names.extend(name.filter(|_| is_test).map(str::to_owned));
            is_test = false;
        }
    }
    names
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> TextFile {
    let text = fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    TextFile { path: path.strip_prefix(root()).unwrap().display().to_string(), text }
}

/// Every file with this extension below a folder of the repository, without folders of installed packages.
fn files_below(folder: &Path, extension: &str) -> Vec<TextFile> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "node_modules" && name != "target") {
            files.extend(files_below(&path, extension));
        } else if path.is_file() && path.extension().is_some_and(|found| found == extension) {
            files.push(read(&path));
        }
    }
    files
}

fn source_files() -> Vec<TextFile> {
    CODE_FOLDERS.iter().flat_map(|folder| files_below(&root().join(folder), "rs")).collect()
}

/// The names of all tests of the repository.
pub fn all_tests() -> BTreeSet<String> {
    source_files().iter().flat_map(|file| test_names(&file.text)).collect()
}

fn clauses() -> Vec<Clause> {
    let document = read(&root().join("docs/REQUIREMENTS.md"));
    parse_clauses(&document.text).unwrap_or_else(|violations| panic!("{}", violations.join("\n")))
}

#[track_caller]
fn assert_none(violations: &[String]) {
    assert!(violations.is_empty(), "{} violations:\n{}", violations.len(), violations.join("\n"));
}

#[test]
fn clauses_are_numbered_without_gaps() {
    let clauses = clauses();
    assert!(clauses.len() > 160, "only {} clauses were found", clauses.len());
    assert_none(&number_violations(&clauses));
}

#[test]
fn every_implemented_clause_names_a_test_that_exists() {
    let tests = all_tests();
    assert!(tests.len() > 1_000, "only {} tests were found", tests.len());
    assert_none(&test_violations(&clauses(), &tests));
}

#[test]
fn every_cited_clause_is_in_the_document() {
    let mut files = source_files();
    files.extend(files_below(&root().join("docs"), "md"));
    files.extend(files_below(&root().join("config"), "json"));
    files.extend(DOCUMENTS.iter().map(|path| read(&root().join(path))));
    let lines = files.iter().flat_map(|file| file.text.lines());
    let citation_count: usize = lines.map(|line| cited_clauses(line).len()).sum();
    assert!(citation_count > 300, "only {citation_count} citations were found");
    assert_none(&citation_violations(&files, &clauses()));
}

/// The checks find what they are for.
mod checks {
    use super::*;

    fn row(number: u32, state: &str, tests: &str) -> String {
        format!("| R{number} | MUST | does something | {state} | {tests} |\n")
    }

    fn parsed(document: &str) -> Vec<Clause> {
        parse_clauses(document).unwrap()
    }

    fn names(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn missing_and_repeated_numbers_are_found() {
        let rows =
            |numbers: &[u32]| numbers.iter().map(|number| row(*number, "implemented", "`a`")).collect::<String>();
        assert_eq!(number_violations(&parsed(&rows(&[2, 1, 3]))), Vec::<String>::new());
        assert_eq!(number_violations(&parsed(&rows(&[1, 3, 3, 5]))).len(), 3, "2 and 4 are missing, 3 is repeated");
        assert_eq!(number_violations(&parsed(&rows(&[0, 1]))).len(), 1);
        assert_eq!(number_violations(&[]).len(), 1, "an empty document");
    }

    #[test]
    fn invalid_rows_are_found() {
        for invalid in [
            row(1, "done", "`a`"),
            row(1, "implemented mostly", "`a`"),
            row(1, "partly", "`a`"),
            row(1, "partly: ", "`a`"),
            row(1, "open:", ""),
            row(1, "implemented", "`a` |"),
            row(1, "implemented", "").replace("MUST", "ought"),
            row(1, "implemented", "").replace("does something", " "),
            row(1, "implemented", "").replace("R1", "R1a"),
        ] {
            assert_eq!(parse_clauses(&invalid).unwrap_err().len(), 1, "{invalid}");
        }
        let table =
            format!("| Number | Level |\n| --- | --- |\n| Relative | x |\n{}", row(1, "implemented", "`a`, `b`"));
        assert_eq!(parsed(&table)[0].tests, ["a", "b"]);
    }

    #[test]
    fn missing_tests_are_found() {
        let tests = names(&["r1_works", "works"]);
        for (state, named, count) in [
            ("implemented", "`works`", 0),
            ("implemented", "", 1),
            ("implemented", "works", 1),
            ("implemented", "`works`, `worked`", 1),
            ("partly: half of it", "`worked`", 1),
            ("open: later", "", 1),
            ("not the gateway's: the caller's", "`worked`", 2),
        ] {
            let clauses = parsed(&row(1, state, named));
            assert_eq!(test_violations(&clauses, &tests).len(), count, "{state} {named}");
        }
        assert!(test_violations(&parsed(&row(2, "open: later", "")), &tests).is_empty());
    }

    #[test]
    fn unknown_citations_are_found() {
        let clauses = parsed(&row(7, "implemented", "`a`"));
        let file = |text: String| [TextFile { path: "src/a.rs".to_owned(), text }];
        for (text, count) in [
            (format!("// as R{} says", 7), 0),
            (format!("// as R{} and (R{}–R{}) say", 7, 8, 9), 2),
            (format!("/// `R{}`.", 700), 1),
            (format!("#[test]\nfn r{}_works() {{}}\n", 8), 1),
            (format!("#[test]\nfn r7_r{}_works() {{}}\n", 8), 1),
            (format!("fn r{}_is_no_test() {{}}\n", 8), 0),
            ("// RS256, R, R2D2, XR8, R8_x, R1234".to_owned(), 0),
        ] {
            assert_eq!(citation_violations(&file(text.clone()), &clauses).len(), count, "{text}");
        }
    }

    #[test]
    fn only_functions_with_a_test_attribute_are_tests() {
        for (source, expected) in [
            ("#[test]\nfn a() {}", &["a"][..]),
            ("    #[tokio::test]\n    async fn a() {}", &["a"]),
            ("#[tokio::test(start_paused = true)]\n#[allow(x)]\n// why\nasync fn a() {}", &["a"]),
            ("#[test]\n#[allow(\n    x,\n    y\n)]\nfn a() {}", &["a"]),
            ("#[test]\nfn a(text in \"x\") {}\nfn b() {}", &["a"]),
            ("fn a() {}", &[]),
            ("#[cfg(test)]\nmod tests;\nfn a() {}", &[]),
            ("// #[test]\nfn a() {}", &[]),
            ("#[test]\nmod x;\nfn a() {}", &[]),
            ("#[testing]\nfn a() {}", &[]),
        ] {
            assert_eq!(test_names(source), expected, "{source}");
        }
    }
}
