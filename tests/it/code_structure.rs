//! Rules of the code that the compiler does not check: which module may import which, which modules may use a
//! third-party crate, that the files of a module form no circle, and what every file must have.
//!
//! `MODULES` and `CRATES` are the layering of the gateway; change them only when the layering changes. A failing test
//! lists every violation with its file and line.

mod file_circles;
mod forms;
mod module_tree;
mod source_scanner;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// What a module may import besides itself.
enum AllowedImports {
    Modules(&'static [&'static str]),
    /// Every module further up in the table.
    Above,
    Everything,
}

use AllowedImports::{Above, Everything, Modules};

/// The top-level modules of `src`, and what each may import. A module stands below the modules that it may import.
const MODULES: &[(&str, AllowedImports)] = &[
    ("fault", Modules(&[])),
    ("values", Modules(&["fault"])),
    ("agent", Modules(&["fault", "values"])),
    ("web_page", Modules(&["values"])),
    ("telemetry", Modules(&["fault", "values", "agent"])),
    ("net", Modules(&["fault", "values", "telemetry"])),
    ("trace", Modules(&["fault", "values", "telemetry", "net"])),
    ("mqtt_client", Modules(&["fault", "values", "telemetry", "net"])),
    ("mqtt_bridge", Modules(&["fault", "values", "agent", "telemetry", "net", "trace", "mqtt_client"])),
    ("signing", Modules(&["fault", "values"])),
    ("audit", Modules(&["fault", "values", "telemetry", "signing"])),
    ("resolver", Modules(&["fault", "values", "agent", "telemetry", "net", "signing"])),
    ("contract", Modules(&["fault", "values", "agent", "telemetry"])),
    ("store", Modules(&["fault", "values", "agent", "telemetry"])),
    ("task", Modules(&["fault", "values", "telemetry", "net", "trace", "store"])),
    ("idempotency", Modules(&["fault", "values", "telemetry", "store"])),
    ("search", Modules(&["fault", "values", "agent", "telemetry"])),
    (
        "registry",
        Modules(&[
            "fault",
            "values",
            "agent",
            "telemetry",
            "net",
            "mqtt_client",
            "resolver",
            "signing",
            "contract",
            "store",
        ]),
    ),
    ("auth", Modules(&["fault", "values", "agent", "telemetry", "net", "signing", "store"])),
    ("key_management", Modules(&["values", "agent", "telemetry", "audit", "auth"])),
    ("limit", Modules(&["fault", "values", "agent", "telemetry", "store"])),
    ("explain", Modules(&["fault", "values", "agent", "auth", "limit"])),
    ("transport", Modules(&["fault", "values", "agent", "telemetry", "net", "trace", "mqtt_client", "resolver"])),
    (
        "directory",
        Modules(&[
            "fault",
            "values",
            "agent",
            "web_page",
            "telemetry",
            "resolver",
            "signing",
            "contract",
            "search",
            "registry",
            "auth",
            "audit",
        ]),
    ),
    ("http_server", Modules(&["fault", "values", "telemetry"])),
    ("gateway", Above),
    (
        "admin",
        Modules(&["fault", "values", "agent", "web_page", "telemetry", "net", "audit", "registry", "auth", "gateway"]),
    ),
    ("config", Above),
    ("doctor", Above),
    ("console", Above),
    ("app", Everything),
    ("demo", Everything),
    ("fuzz", Everything),
    ("cli", Everything),
    ("main", Everything),
    ("lib", Everything),
];

/// Third-party crates and the modules that may use them. A crate that is not listed may be used anywhere, and the tests
/// of a module may use any crate.
const CRATES: &[(&str, &[&str])] = &[
    ("pingora_core", &["http_server"]),
    ("pingora_http", &["http_server"]),
    ("hyper", &["admin", "transport", "app", "demo", "net"]),
    ("hyper_util", &["admin", "transport", "app", "demo"]),
    ("rustls", &["http_server", "app", "auth", "transport", "net", "store"]),
    ("tokio_rustls", &["http_server", "app", "auth", "transport", "net"]),
    ("reqwest", &["net"]),
    ("http_cache_semantics", &["net"]),
    ("x509_parser", &["http_server", "auth", "values"]),
    ("jsonwebtoken", &["signing", "app"]),
    ("serde_json_canonicalizer", &["signing"]),
    ("governor", &["limit"]),
    ("rumqttc_v4", &["mqtt_client"]),
    ("rumqttc_v5", &["mqtt_client"]),
    ("tokio_tungstenite", &["gateway", "transport"]),
    ("json_schema", &["contract"]),
    ("prometheus", &["telemetry"]),
    ("opentelemetry_proto", &["trace"]),
    ("prost", &["trace"]),
    ("rusqlite", &["store"]),
    ("tokio_postgres", &["store"]),
    ("deadpool_postgres", &["store"]),
    ("redis", &["store"]),
    ("rust_stemmers", &["search"]),
    ("unicode_normalization", &["search"]),
    ("tokio_postgres_rustls", &["store"]),
    ("safetensors", &["search"]),
    ("matchit", &["gateway"]),
    ("axum", &["admin", "console", "demo"]),
    ("maud", &["web_page", "directory", "admin", "console"]),
    ("serde_saphyr", &["registry", "config"]),
    ("clap", &["main", "cli", "app"]),
    ("percent_encoding", &["values"]),
    ("backon", &["values"]),
    ("fastrand", &["values"]),
];

/// Macros that mark unfinished code.
const UNFINISHED: &[&str] = &["todo", "unimplemented", "dbg"];
/// In two parts, so that this file does not contain it.
const NOTE_TO_SELF: &str = concat!("FIX", "ME");

/// Files are shorter as a rule. The bound is wide because an object and its methods stand together: a bound that cut
/// them apart would do harm.
const LONGEST_FILE: usize = 500;

#[derive(Debug, PartialEq)]
struct Violation {
    file: String,
    line: usize,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// One file of the repository: its path from the root, separated by `/`, and its text.
struct SourceFile {
    path: String,
    text: String,
}

impl SourceFile {
    fn violation(&self, line: usize, what: String) -> Violation {
        Violation { file: self.path.clone(), line, what }
    }

    /// The module path of a file under `src`: `src/auth/jwt/mod.rs` is `[auth, jwt]`.
    fn module_path(&self) -> Vec<&str> {
        let inner = self.path.strip_prefix("loadtest/").unwrap_or(&self.path);
        let inner = inner.strip_prefix("src/").unwrap_or(inner);
        let stem = inner.strip_suffix(".rs").unwrap_or(inner);
        let mut path: Vec<&str> = stem.split('/').collect();
        if matches!(path.last(), Some(&"mod" | &"lib" | &"main")) {
            path.pop();
        }
        path
    }

    /// The top-level module of a file under `src`.
    fn top_module(&self) -> &str {
        match self.path.as_str() {
            "src/main.rs" => "main",
            "src/lib.rs" => "lib",
            _ => self.module_path().first().copied().unwrap_or("lib"),
        }
    }

    /// The part of the code in which files form no circle: a top-level module of `src`, or all of `loadtest`.
    fn circle_scope(&self) -> &str {
        if self.path.starts_with("loadtest/") { "loadtest" } else { self.top_module() }
    }

    fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }
}

/// Returns the violations of `MODULES` and `CRATES` in a file under `src`.
fn layering_violations(source: &SourceFile) -> Vec<Violation> {
    let module = source.top_module();
    if !MODULES.iter().any(|(name, _)| *name == module) {
        return vec![source.violation(1, format!("`{module}` is not a module of the table"))];
    }
    let depth = source.module_path().len();
    let tokens = source_scanner::tokenize(&source_scanner::blank_comments_and_literals(&source.text));
    let mut violations = Vec::new();
    for path in source_scanner::find_paths(&tokens) {
        let what = match crate_root_segment(&path.segments, depth + path.inline_modules.len()) {
            Some(imported) => forbidden_import(module, imported),
            None if source.is_test() => None,
            None => forbidden_crate(module, &path.segments),
        };
        violations.extend(what.map(|what| source.violation(path.line, what)));
    }
    // A `use` group that names two items of one module is one violation.
    violations.dedup();
    violations
}

/// Returns the first segment below the crate root if the path starts there: as `crate::x`, or as a chain of `super::`
/// that reaches the root. `depth` is the depth of the module that contains the path.
fn crate_root_segment(segments: &[String], depth: usize) -> Option<&str> {
    let mut rest = segments.iter().map(String::as_str).peekable();
    if rest.next_if_eq(&"crate").is_some() {
        return rest.next();
    }
    rest.next_if_eq(&"self");
    let mut climbed = 0;
    while rest.next_if_eq(&"super").is_some() {
        climbed += 1;
    }
    if climbed > 0 && climbed == depth { rest.next() } else { None }
}

fn forbidden_import(module: &str, imported: &str) -> Option<String> {
    let rank = |name: &str| MODULES.iter().position(|(module, _)| *module == name);
    let (_, allowed) = MODULES.iter().find(|(name, _)| *name == module)?;
    let allowed = match allowed {
        Everything => true,
        Above => imported == module || rank(imported).is_some_and(|rank_of| Some(rank_of) < rank(module)),
        Modules(modules) => imported == module || modules.contains(&imported),
    };
    (!allowed).then(|| format!("`{module}` may not import `{imported}`"))
}

fn forbidden_crate(module: &str, segments: &[String]) -> Option<String> {
    let crate_name = segments.first()?;
    let (name, users) = CRATES.iter().find(|(name, _)| name == crate_name)?;
    let is_allowed = users.contains(&module) || module == "lib";
    (!is_allowed).then(|| format!("`{name}` belongs to {}, not to `{module}`", users.join(", ")))
}

/// Returns the violations of the rules for every file.
fn file_violations(source: &SourceFile) -> Vec<Violation> {
    let mut violations = Vec::new();
    if !source.text.starts_with("//!") {
        violations.push(source.violation(1, "does not begin with `//!`".to_owned()));
    }
    let lines = source.text.lines().count();
    if source.path.starts_with("src/") && !source.is_test() && lines > LONGEST_FILE {
        let what = format!("{lines} lines (at most {LONGEST_FILE}, without tests)");
        violations.push(source.violation(LONGEST_FILE + 1, what));
    }
    for (line, text) in (1..).zip(source.text.lines()) {
        if text.contains(NOTE_TO_SELF) {
            violations.push(source.violation(line, format!("`{NOTE_TO_SELF}`")));
        }
    }
    let tokens = source_scanner::tokenize(&source_scanner::blank_comments_and_literals(&source.text));
    for (token, next) in tokens.iter().zip(tokens.iter().skip(1)) {
        if next.text == "!" && UNFINISHED.contains(&token.text.as_str()) {
            violations.push(source.violation(token.line, format!("`{}!`", token.text)));
        }
    }
    violations
}

/// Returns every `.rs` file below a folder of the repository.
fn sources(folder: &str) -> Vec<SourceFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<PathBuf> = vec![root.join(folder)];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).expect("a folder of the repository cannot be read");
        for entry in entries {
            let path = entry.expect("an entry of a folder cannot be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).expect("a source file is not UTF-8");
                let relative = path.strip_prefix(root).expect("a source file is outside of the root");
                sources.push(SourceFile { path: relative.display().to_string(), text });
            }
        }
    }
    sources.sort_by(|one, other| one.path.cmp(&other.path));
    sources
}

/// The folders of crates of their own within `src`, whose files belong to no module of the gateway.
const OWN_CRATES: [&str; 2] = ["src/allocator/", "src/json_schema/"];

/// Returns every file of a folder that belongs to the gateway's own crate.
fn gateway_sources(folder: &str) -> Vec<SourceFile> {
    sources(folder)
        .into_iter()
        .filter(|source| !OWN_CRATES.iter().any(|folder| source.path.starts_with(folder)))
        .collect()
}

fn assert_none(violations: &[Violation]) {
    let lines: Vec<String> = violations.iter().map(Violation::to_string).collect();
    assert!(lines.is_empty(), "{} violations:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn modules_import_only_what_the_table_allows() {
    let violations: Vec<Violation> = gateway_sources("src").iter().flat_map(layering_violations).collect();
    assert_none(&violations);
}

#[test]
fn every_file_follows_the_file_rules() {
    let folders = ["src", "tests", "loadtest"];
    let files = folders.into_iter().flat_map(sources);
    let violations: Vec<Violation> = files.flat_map(|source| file_violations(&source)).collect();
    assert_none(&violations);
}

#[test]
fn files_of_a_module_form_no_circle() {
    let folders = ["src", "loadtest/src"].into_iter();
    let violations: Vec<Violation> =
        folders.flat_map(|folder| file_circles::file_circles(&gateway_sources(folder))).collect();
    assert_none(&violations);
}

#[test]
fn an_inherent_impl_stands_in_the_file_of_its_type() {
    let violations =
        ["src", "loadtest/src"].into_iter().flat_map(|folder| file_circles::misplaced_impls(&gateway_sources(folder)));
    assert_none(&violations.collect::<Vec<_>>());
}

#[test]
fn functions_have_no_forbidden_form() {
    let files = ["src", "loadtest/src"].into_iter().flat_map(sources);
    let violations: Vec<Violation> = files.flat_map(|source| forms::form_violations(&source)).collect();
    assert_none(&violations);
}

#[test]
fn the_table_names_only_modules_above() {
    for (at, (module, allowed)) in MODULES.iter().enumerate() {
        let Modules(allowed) = allowed else { continue };
        for other in *allowed {
            let rank = MODULES.iter().position(|(name, _)| name == other);
            assert!(rank.is_some_and(|rank| rank < at), "`{module}` names `{other}`, which is not above it");
        }
    }
    for (name, users) in CRATES {
        let in_table = |user: &&str| MODULES.iter().any(|(module, _)| module == user);
        assert!(users.iter().all(in_table), "`{name}` belongs to a module that is not in the table");
    }
}

/// Tests of the rules, on small files that violate them.
mod rules {
    use super::{LONGEST_FILE, SourceFile, file_violations, layering_violations};

    fn source_file(path: &str, text: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    /// Returns the layering violations of a snippet, as `line: what`.
    fn snippet_violations(path: &str, text: &str) -> Vec<String> {
        let violations = layering_violations(&source_file(path, text));
        violations.iter().map(|violation| format!("{}: {}", violation.line, violation.what)).collect()
    }

    fn snippet_file_violations(path: &str, text: &str) -> Vec<String> {
        let violations = file_violations(&source_file(path, text));
        violations.iter().map(|violation| format!("{}: {}", violation.line, violation.what)).collect()
    }

    const GATEWAY: &str = "`auth` may not import `gateway`";

    #[test]
    fn an_import_from_further_down_is_found() {
        let text = "use crate::fault::Fault;\nuse crate::gateway::Call;\n";
        assert_eq!(snippet_violations("src/auth/mod.rs", text), [format!("2: {GATEWAY}")]);
        assert_eq!(snippet_violations("src/auth.rs", text), [format!("2: {GATEWAY}")]);
    }

    #[test]
    fn every_violation_is_found_with_its_line() {
        let text = "use crate::gateway::A;\nuse crate::admin::B;\nfn f() {}\nuse crate::app::C;\n";
        let violations = snippet_violations("src/auth/key.rs", text);
        assert_eq!(violations.len(), 3, "{violations:?}");
        assert_eq!(violations[2], "4: `auth` may not import `app`");
    }

    #[test]
    fn a_use_group_is_expanded() {
        let text = "use crate::{\n    fault::{FaultCode, Fault},\n    gateway::{self, Call},\n    net::{Fetch},\n    admin::State,\n};\n";
        let violations = snippet_violations("src/auth/mod.rs", text);
        assert_eq!(violations, [format!("3: {GATEWAY}"), "5: `auth` may not import `admin`".to_owned()]);
    }

    #[test]
    fn a_path_in_a_body_a_macro_or_an_attribute_is_found() {
        for text in [
            "fn f() { crate::gateway::answer() }",
            "fn f() -> Vec<crate::gateway::Call> { vec![] }",
            "fn f() { format!(\"{}\", crate::gateway::NAME) }",
            "#[serde(with = \"x\")] #[cfg_attr(a, crate::gateway::mark)] struct S;",
            "fn f() { <crate::gateway::Call as Default>::default() }",
        ] {
            assert_eq!(snippet_violations("src/auth/mod.rs", text), [format!("1: {GATEWAY}")], "{text}");
        }
    }

    #[test]
    fn super_up_to_the_root_is_an_import() {
        let climbs = "use super::super::gateway::Call;";
        assert_eq!(snippet_violations("src/auth/jwt.rs", climbs), [format!("1: {GATEWAY}")]);
        let nested = "mod inner { use super::super::gateway::Call; }";
        assert_eq!(snippet_violations("src/auth/mod.rs", nested), [format!("1: {GATEWAY}")]);
        assert!(snippet_violations("src/auth/jwt/keys.rs", climbs).is_empty());
    }

    #[test]
    fn text_in_comments_and_literals_is_not_an_import() {
        for text in [
            "// crate::gateway::Call\n/* use crate::gateway::Call; /* nested */ */",
            "//! [`crate::gateway::Call`]\n/// crate::gateway::Call\nstruct S;",
            "const S: &str = \"crate::gateway::Call \\\" crate::gateway::Call\";",
            "const S: &str = r#\"a \" crate::gateway::Call\"#;",
            "const S: &[u8] = br\"crate::gateway::Call\";",
        ] {
            assert!(snippet_violations("src/auth/mod.rs", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn code_after_a_literal_is_read() {
        for text in [
            "const A: char = '\"'; use crate::gateway::Call;",
            "const A: char = '\\''; use crate::gateway::Call;",
            "fn f<'a>(a: &'a str) { crate::gateway::answer(a) }",
            "const A: &str = \"\\\\\"; use crate::gateway::Call;",
            "const A: &str = r\"\\\"; use crate::gateway::Call;",
            "fn f() { let r#type = 1; crate::gateway::answer(r#type) }",
        ] {
            assert_eq!(snippet_violations("src/auth/mod.rs", text), [format!("1: {GATEWAY}")], "{text}");
        }
    }

    #[test]
    fn a_third_party_crate_stays_in_its_modules() {
        let violation = ["1: `x509_parser` belongs to http_server, auth, values, not to `gateway`"];
        for text in [
            "use x509_parser::decode;",
            "use {x509_parser::decode, std::fmt};",
            "use x509_parser as jwt;",
            "fn f() { ::x509_parser::decode() }",
            "fn f() -> Vec<x509_parser::Header> { vec![] }",
        ] {
            assert_eq!(snippet_violations("src/gateway/mod.rs", text), violation, "{text}");
            assert!(snippet_violations("src/auth/jwt.rs", text).is_empty(), "{text}");
            assert!(snippet_violations("src/gateway/tests.rs", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_module_named_like_a_crate_is_not_the_crate() {
        let text = "use crate::telemetry::prometheus::X;\nfn f() { self::prometheus::g() }\n";
        assert!(snippet_violations("src/gateway/mod.rs", text).is_empty());
    }

    #[test]
    fn a_module_outside_the_table_is_found() {
        assert_eq!(snippet_violations("src/helpers.rs", ""), ["1: `helpers` is not a module of the table"]);
        let text = "use crate::helpers::X;\nuse crate::*;\n";
        let violations = snippet_violations("src/auth/mod.rs", text);
        assert_eq!(violations[0], "1: `auth` may not import `helpers`");
        assert_eq!(violations[1], "2: `auth` may not import `*`");
    }

    #[test]
    fn the_last_modules_may_import_everything_and_the_gateway_what_is_above_it() {
        assert!(snippet_violations("src/app/mod.rs", "use crate::{demo::X, gateway::Y};").is_empty());
        assert!(snippet_violations("src/main.rs", "use crate::cli::X;").is_empty());
        assert!(snippet_violations("src/gateway/mod.rs", "use crate::{auth::X, net::Y};").is_empty());
        let violation = snippet_violations("src/gateway/mod.rs", "use crate::config::X;");
        assert_eq!(violation, ["1: `gateway` may not import `config`"]);
    }

    #[test]
    fn the_file_rules_are_checked() {
        assert_eq!(snippet_file_violations("tests/it/x.rs", "use x;\n"), ["1: does not begin with `//!`"]);
        let unfinished = "//! x\nfn f() { todo!() }\nfn g() { dbg!(1); unimplemented!() }\n";
        let violations = snippet_file_violations("src/auth/x.rs", unfinished);
        assert_eq!(violations, ["2: `todo!`", "3: `dbg!`", "3: `unimplemented!`"]);
        let note = concat!("//! x\n// FIX", "ME later\n");
        assert_eq!(snippet_file_violations("loadtest/src/x.rs", note).len(), 1);
        assert!(snippet_file_violations("src/auth/x.rs", "//! x\n// todo!() in words\n").is_empty());
    }

    #[test]
    fn a_long_file_is_found_unless_it_is_a_test() {
        let long = format!("//! x\n{}", "\n".repeat(LONGEST_FILE));
        assert_eq!(snippet_file_violations("src/auth/x.rs", &long).len(), 1);
        assert!(snippet_file_violations("src/auth/tests.rs", &long).is_empty());
        assert!(snippet_file_violations("src/auth/tests/jwt.rs", &long).is_empty());
        assert!(snippet_file_violations("tests/it/x.rs", &long).is_empty());
    }
}
