//! The pages in `docs/` are true: their configuration examples load with current key names, and their links lead to
//! files and headings that exist.

use gatepost::config::LoadedConfig;
use std::{
    fs,
    path::{Path, PathBuf},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every page of the documentation, with its path.
fn pages() -> Vec<(PathBuf, String)> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.extend(
        ["README.md", "CONTRIBUTING.md", "SECURITY.md", ".github/PULL_REQUEST_TEMPLATE.md"]
            .map(|page| root().join(page)),
    );
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

/// The fenced blocks of a language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    page.split(&*fence).skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

#[test]
fn configuration_examples_load_with_current_key_names() {
    let mut count = 0;
    for (path, page) in pages() {
        for block in blocks(&page, "yaml") {
            let has = |key: &str| block.lines().any(|line| line.starts_with(key));
            // A document of an agent, or a comment alone, is not a configuration.
            if has("id:") || block.lines().all(|line| line.trim().is_empty() || line.starts_with('#')) {
                continue;
            }
            let mut text = block.to_owned();
            if !has("listeners:") {
                text.push_str("listeners: [{address: '127.0.0.1:0'}]\n");
            }
            let loaded = LoadedConfig::parse(&text, Path::new("/etc/gatepost"), std::iter::empty());
            assert!(loaded.is_ok(), "{}: {}\n{block}", path.display(), loaded.unwrap_err());
            count += 1;
        }
    }
    assert!(count > 20, "only {count} examples were found");
}

/// The anchor that a heading has.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    for (path, page) in pages() {
        for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.starts_with("http") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { path.clone() } else { path.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link}", path.display());
            if !heading.is_empty() {
                let text = fs::read_to_string(&target).unwrap();
                let headings = text.lines().filter(|line| line.starts_with('#'));
                let found =
                    headings.map(|line| anchor(line.trim_start_matches(['#', ' ']))).any(|known| known == heading);
                assert!(found, "{}: {link}", path.display());
            }
        }
    }
}

#[test]
fn every_command_and_option_that_the_pages_name_exists() {
    let binary = env!("CARGO_BIN_EXE_gatepost");
    let help = |words: &[&str]| {
        let output = std::process::Command::new(binary).args(words).arg("--help").output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    for (path, page) in pages() {
        for command in page.split("gatepost ").skip(1) {
            let line = command.split(['`', '\n', '#', '|', ';']).next().unwrap_or_default();
            let mut words = line.split_whitespace();
            let Some(first) = words.next().filter(|word| {
                ["run", "check", "schema", "demo", "resolve", "call", "audit", "key", "registry"].contains(word)
            }) else {
                continue;
            };
            let is_nested = matches!(first, "audit" | "key" | "registry");
            let nested = words.clone().next().filter(|_| is_nested).map(|word| word.trim_end_matches([',', ':', '.']));
            let words_of_command: Vec<&str> = std::iter::once(first).chain(nested).collect();
            let (known, text) = help(&words_of_command);
            assert!(known, "{}: gatepost {line}", path.display());
            for option in words.filter(|word| word.starts_with("--")) {
                let option = option.trim_end_matches(['.', ',', ':', ')']);
                assert!(text.contains(option), "{}: gatepost {line}: {option} is unknown", path.display());
            }
        }
    }
}

#[test]
fn every_source_file_that_the_architecture_names_exists() {
    let crate_doc = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    let architecture = fs::read_to_string(root().join("docs/ARCHITECTURE.md")).unwrap();
    for text in [crate_doc, architecture] {
        let quoted = text.split('`').skip(1).step_by(2);
        let mut count = 0;
        let is_path = |text: &&str| (text.ends_with(".rs") || text.ends_with('/')) && !text.contains("://");
        for path in quoted.filter(is_path) {
            let exists = ["", "src", "src/gateway"].iter().any(|base| root().join(base).join(path).exists());
            assert!(exists, "{path} does not exist");
            count += 1;
        }
        assert!(count > 5, "only {count} paths were found");
    }
}

#[test]
fn every_file_that_the_pages_for_contributors_name_exists() {
    let mut count = 0;
    for page in ["CONTRIBUTING.md", "docs/releasing.md", ".github/PULL_REQUEST_TEMPLATE.md"] {
        let text = fs::read_to_string(root().join(page)).unwrap();
        let endings = [".rs", ".json", ".toml", ".lock", ".yaml", ".md", "/"];
        for path in text.split('`').skip(1).step_by(2).filter(|text| endings.iter().any(|end| text.ends_with(end))) {
            assert!(root().join(path).exists(), "{page}: {path} does not exist");
            count += 1;
        }
    }
    assert!(count > 5, "only {count} files were found");
}

#[test]
fn issue_forms_have_the_members_that_github_requires() {
    for name in ["bug_report.yml", "feature_request.yml"] {
        let text = fs::read_to_string(root().join(".github/ISSUE_TEMPLATE").join(name)).unwrap();
        let form: serde_json::Value = serde_saphyr::from_str(&text).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert!(form["name"].is_string() && form["description"].is_string(), "{name}");
        let mut ids = std::collections::HashSet::new();
        for field in form["body"].as_array().unwrap() {
            let (kind, attributes) = (field["type"].as_str().unwrap(), &field["attributes"]);
            if kind == "markdown" {
                assert!(attributes["value"].is_string(), "{name}: {field}");
                continue;
            }
            assert!(["input", "textarea", "dropdown", "checkboxes"].contains(&kind), "{name}: {field}");
            assert!(attributes["label"].is_string(), "{name}: {field}");
            assert!(ids.insert(field["id"].as_str().unwrap().to_owned()), "{name}: the id is not unique: {field}");
        }
        assert!(!ids.is_empty(), "{name} has no field");
    }
}

/// The text of one page of `docs/`.
fn page_text(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

#[test]
fn r99_every_endpoint_scheme_is_documented_with_its_security() {
    // The message for an unsupported scheme lists the supported ones.
    let message = "x-unknown://a".parse::<gatepost::agent::AgentEndpoint>().unwrap_err();
    let schemes = message.split_once(" (").unwrap().1.trim_end_matches(')').split(", ");
    let page = page_text("transports.md");
    let rows: Vec<Vec<&str>> =
        page.lines().filter(|line| line.starts_with("| `")).map(|line| line.split(" | ").collect()).collect();
    let mut count = 0;
    for scheme in schemes {
        let is_of_scheme = |row: &&Vec<&str>| row[0].contains(&format!("`{scheme}://"));
        let row = rows.iter().find(is_of_scheme).unwrap_or_else(|| panic!("transports.md does not describe {scheme}"));
        assert!(row.get(2).is_some_and(|security| security.trim_matches([' ', '|']).len() > 5), "{scheme}: {row:?}");
        count += 1;
    }
    assert!(count > 10, "only {count} schemes were found in: {message}");
}

#[test]
fn r155_r156_r159_decisions_and_extensions_are_documented() {
    for (page, texts) in [
        ("transports.md", &["`agent+ws` is an extension", "`{\"response\":…,\"task_id\":…}`", "`agent.toml`"][..]),
        ("calling.md", &["| `X-Operation` |", "## Pipelines"]),
        ("discovery.md", &["`versionNegotiation`", "`agent:[+proto]://`"]),
    ] {
        for text in texts {
            assert!(page_text(page).contains(text), "{page} does not have {text}");
        }
    }
}
