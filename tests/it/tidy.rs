//! The house rules that a compiler does not know: which room may import which, where a
//! third-party crate may live, and what every file owes its reader.
//!
//! `ROOMS` and `CRATES` are the layering of the gateway; change them when the house changes
//! and for no other reason. A failing test names every offence with its file and line.

mod scan;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// What a room may import besides itself.
enum Reach {
    Rooms(&'static [&'static str]),
    /// Every room that stands higher in the table.
    Above,
    Everything,
}

use Reach::{Above, Everything, Rooms};

/// The rooms in the order a call meets them. A room is a top-level module of `src`.
const ROOMS: &[(&str, Reach)] = &[
    ("fault", Rooms(&[])),
    ("unit", Rooms(&["fault"])),
    ("agent", Rooms(&["fault", "unit"])),
    ("telemetry", Rooms(&["fault", "unit", "agent"])),
    ("net", Rooms(&["fault", "unit", "telemetry"])),
    ("broker", Rooms(&["fault", "unit", "telemetry", "net"])),
    ("bridge", Rooms(&["fault", "unit", "agent", "telemetry", "net", "broker"])),
    ("names", Rooms(&["fault", "unit", "agent", "telemetry", "net"])),
    ("seal", Rooms(&["fault", "unit"])),
    ("contract", Rooms(&["fault", "unit", "agent", "telemetry"])),
    ("store", Rooms(&["fault", "unit", "agent", "telemetry"])),
    ("task", Rooms(&["fault", "unit", "telemetry", "net", "store"])),
    ("once", Rooms(&["fault", "unit"])),
    ("search", Rooms(&["fault", "unit", "agent", "telemetry"])),
    (
        "registry",
        Rooms(&["fault", "unit", "agent", "telemetry", "net", "broker", "names", "seal", "contract", "store"]),
    ),
    ("auth", Rooms(&["fault", "unit", "agent", "telemetry", "net", "store"])),
    ("limit", Rooms(&["fault", "unit", "agent", "telemetry", "store"])),
    ("transport", Rooms(&["fault", "unit", "agent", "telemetry", "net", "broker", "names"])),
    (
        "directory",
        Rooms(&["fault", "unit", "agent", "telemetry", "names", "seal", "contract", "search", "registry", "auth"]),
    ),
    ("gateway", Above),
    ("admin", Rooms(&["fault", "unit", "agent", "telemetry", "registry", "gateway"])),
    ("config", Above),
    ("app", Everything),
    ("demo", Everything),
    ("cli", Everything),
    ("main", Everything),
    ("lib", Everything),
];

/// Third-party crates that belong to rooms. A crate that is not listed may be used anywhere,
/// and a room's own tests may use what they like.
const CRATES: &[(&str, &[&str])] = &[
    ("pingora_core", &["gateway", "app"]),
    ("pingora_http", &["gateway", "app"]),
    ("hyper", &["transport", "app", "demo"]),
    ("hyper_util", &["transport", "app", "demo"]),
    ("rustls", &["gateway", "app", "auth", "transport", "net", "store"]),
    ("tokio_rustls", &["gateway", "app", "auth", "transport", "net"]),
    ("reqwest", &["net"]),
    ("http_cache_semantics", &["net"]),
    ("jsonwebtoken", &["auth", "app"]),
    ("x509_parser", &["auth"]),
    ("serde_json_canonicalizer", &["seal"]),
    ("governor", &["limit"]),
    ("rumqttc_v4", &["broker"]),
    ("rumqttc_v5", &["broker"]),
    ("tokio_tungstenite", &["gateway", "transport"]),
    ("jsonschema", &["contract"]),
    ("prometheus", &["telemetry"]),
    ("rusqlite", &["store"]),
    ("tokio_postgres", &["store"]),
    ("deadpool_postgres", &["store"]),
    ("rust_stemmers", &["search"]),
    ("unicode_normalization", &["search"]),
    ("tokio_postgres_rustls", &["store"]),
    ("safetensors", &["search"]),
    ("matchit", &["gateway"]),
    ("axum", &["admin", "demo"]),
    ("serde_saphyr", &["registry", "config"]),
    ("clap", &["main", "cli", "app"]),
];

/// Macros that say "later". Written with a gap, or this file would offend itself.
const UNFINISHED: &[&str] = &["todo", "unimplemented", "dbg"];
const NOTE_TO_SELF: &str = concat!("FIX", "ME");

const LONGEST_FILE: usize = 300;

#[derive(Debug, PartialEq)]
struct Offence {
    file: String,
    line: usize,
    what: String,
}

impl fmt::Display for Offence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// One file of the repository: its path from the root, with `/`, and its text.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn offence(&self, line: usize, what: String) -> Offence {
        Offence { file: self.path.clone(), line, what }
    }

    /// The module path of a file under `src`: `src/auth/jwt/mod.rs` is `[auth, jwt]`.
    fn module(&self) -> Vec<&str> {
        let inner = self.path.strip_prefix("src/").unwrap_or(&self.path);
        let stem = inner.strip_suffix(".rs").unwrap_or(inner);
        let mut module: Vec<&str> = stem.split('/').collect();
        if matches!(module.last(), Some(&"mod" | &"lib" | &"main")) {
            module.pop();
        }
        module
    }

    fn room(&self) -> &str {
        match self.path.as_str() {
            "src/main.rs" => "main",
            "src/lib.rs" => "lib",
            _ => self.module().first().copied().unwrap_or("lib"),
        }
    }

    fn is_test(&self) -> bool {
        self.path.ends_with("/tests.rs") || self.path.contains("/tests/")
    }
}

/// Offences against `ROOMS` and `CRATES` in a file under `src`.
fn layering(source: &Source) -> Vec<Offence> {
    let room = source.room();
    if !ROOMS.iter().any(|(name, _)| *name == room) {
        return vec![source.offence(1, format!("`{room}` is not a room of the table"))];
    }
    let depth = source.module().len();
    let words = scan::words(&scan::blank(&source.text));
    let mut offences = Vec::new();
    for path in scan::paths(&words) {
        let found = match from_root(&path.segments, depth + path.inside) {
            Some(other) => import(room, other),
            None if source.is_test() => None,
            None => third_party(room, &path.segments),
        };
        offences.extend(found.map(|what| source.offence(path.line, what)));
    }
    // A group that names two things of one room offends once.
    offences.dedup();
    offences
}

/// The first segment below the crate's root, if the path starts there: `crate::x`, or a
/// `super::` chain that climbs all the way. `depth` is how deep the path's module lies.
fn from_root(segments: &[String], depth: usize) -> Option<&str> {
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

fn import(room: &str, other: &str) -> Option<String> {
    let rank = |name: &str| ROOMS.iter().position(|(known, _)| *known == name);
    let (_, reach) = ROOMS.iter().find(|(name, _)| *name == room)?;
    let allowed = match reach {
        Everything => true,
        Above => other == room || rank(other).is_some_and(|rank_of| Some(rank_of) < rank(room)),
        Rooms(rooms) => other == room || rooms.contains(&other),
    };
    (!allowed).then(|| format!("`{room}` may not import `{other}`"))
}

fn third_party(room: &str, segments: &[String]) -> Option<String> {
    let first = segments.first()?;
    let (name, homes) = CRATES.iter().find(|(name, _)| name == first)?;
    let at_home = homes.contains(&room) || room == "lib";
    (!at_home).then(|| format!("`{name}` belongs to {}, not to `{room}`", homes.join(", ")))
}

/// Offences against what every file owes, wherever it stands.
fn manners(source: &Source) -> Vec<Offence> {
    let mut offences = Vec::new();
    if !source.text.starts_with("//!") {
        offences.push(source.offence(1, "does not begin with `//!`".to_owned()));
    }
    let lines = source.text.lines().count();
    if source.path.starts_with("src/") && !source.is_test() && lines > LONGEST_FILE {
        let what = format!("{lines} lines (at most {LONGEST_FILE}, without tests)");
        offences.push(source.offence(LONGEST_FILE + 1, what));
    }
    for (line, text) in (1..).zip(source.text.lines()) {
        if text.contains(NOTE_TO_SELF) {
            offences.push(source.offence(line, format!("`{NOTE_TO_SELF}`")));
        }
    }
    let words = scan::words(&scan::blank(&source.text));
    for (word, next) in words.iter().zip(words.iter().skip(1)) {
        if next.text == "!" && UNFINISHED.contains(&word.text.as_str()) {
            offences.push(source.offence(word.line, format!("`{}!`", word.text)));
        }
    }
    offences
}

/// Every `.rs` file below a folder of the repository.
fn sources(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut open: Vec<PathBuf> = vec![root.join(folder)];
    let mut found = Vec::new();
    while let Some(folder) = open.pop() {
        let entries = fs::read_dir(&folder).expect("a folder of the repository can be read");
        for entry in entries {
            let path = entry.expect("a folder's entry can be read").path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).expect("source is UTF-8");
                let short = path.strip_prefix(root).expect("found below the root");
                found.push(Source { path: short.display().to_string(), text });
            }
        }
    }
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

fn report(offences: &[Offence]) {
    let lines: Vec<String> = offences.iter().map(Offence::to_string).collect();
    assert!(lines.is_empty(), "{} offences:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn rooms_import_only_what_the_table_allows() {
    let offences: Vec<Offence> = sources("src").iter().flat_map(layering).collect();
    report(&offences);
}

#[test]
fn every_file_has_its_manners() {
    let folders = ["src", "tests", "loadtest"];
    let files = folders.into_iter().flat_map(sources);
    let offences: Vec<Offence> = files.flat_map(|source| manners(&source)).collect();
    report(&offences);
}

#[test]
fn the_table_names_only_rooms_above() {
    for (at, (room, reach)) in ROOMS.iter().enumerate() {
        let Rooms(allowed) = reach else { continue };
        for other in *allowed {
            let rank = ROOMS.iter().position(|(name, _)| name == other);
            assert!(rank.is_some_and(|rank| rank < at), "`{room}` names `{other}`, not above it");
        }
    }
    for (name, homes) in CRATES {
        let known = |home: &&str| ROOMS.iter().any(|(room, _)| room == home);
        assert!(homes.iter().all(known), "`{name}` lives in a room that is not in the table");
    }
}

/// The rules themselves, on small files that break them.
mod rules {
    use super::{LONGEST_FILE, Source, layering, manners};

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    /// Offences of a snippet against the layering, as `line: what`.
    fn found(path: &str, text: &str) -> Vec<String> {
        let offences = layering(&source(path, text));
        offences.iter().map(|offence| format!("{}: {}", offence.line, offence.what)).collect()
    }

    fn ill_mannered(path: &str, text: &str) -> Vec<String> {
        let offences = manners(&source(path, text));
        offences.iter().map(|offence| format!("{}: {}", offence.line, offence.what)).collect()
    }

    const GATEWAY: &str = "`auth` may not import `gateway`";

    #[test]
    fn an_import_downwards_is_found() {
        let text = "use crate::fault::Fault;\nuse crate::gateway::Call;\n";
        assert_eq!(found("src/auth/mod.rs", text), [format!("2: {GATEWAY}")]);
        assert_eq!(found("src/auth.rs", text), [format!("2: {GATEWAY}")]);
    }

    #[test]
    fn every_offence_is_found_with_its_own_line() {
        let text = "use crate::gateway::A;\nuse crate::admin::B;\nfn f() {}\nuse crate::app::C;\n";
        let offences = found("src/auth/key.rs", text);
        assert_eq!(offences.len(), 3, "{offences:?}");
        assert_eq!(offences[2], "4: `auth` may not import `app`");
    }

    #[test]
    fn a_group_is_read_to_its_leaves() {
        let text = "use crate::{\n    fault::{FaultCode, Fault},\n    gateway::{self, Call},\n    net::{Fetch},\n    admin::State,\n};\n";
        let offences = found("src/auth/mod.rs", text);
        assert_eq!(offences, [format!("3: {GATEWAY}"), "5: `auth` may not import `admin`".to_owned()]);
    }

    #[test]
    fn a_path_inside_a_body_a_macro_or_an_attribute_is_found() {
        for text in [
            "fn f() { crate::gateway::answer() }",
            "fn f() -> Vec<crate::gateway::Call> { vec![] }",
            "fn f() { format!(\"{}\", crate::gateway::NAME) }",
            "#[serde(with = \"x\")] #[cfg_attr(a, crate::gateway::mark)] struct S;",
            "fn f() { <crate::gateway::Call as Default>::default() }",
        ] {
            assert_eq!(found("src/auth/mod.rs", text), [format!("1: {GATEWAY}")], "{text}");
        }
    }

    #[test]
    fn climbing_to_the_root_is_an_import() {
        let climbs = "use super::super::gateway::Call;";
        assert_eq!(found("src/auth/jwt.rs", climbs), [format!("1: {GATEWAY}")]);
        let nested = "mod inner { use super::super::gateway::Call; }";
        assert_eq!(found("src/auth/mod.rs", nested), [format!("1: {GATEWAY}")]);
        assert!(found("src/auth/jwt/keys.rs", climbs).is_empty());
    }

    #[test]
    fn words_in_comments_and_literals_are_no_imports() {
        for text in [
            "// crate::gateway::Call\n/* use crate::gateway::Call; /* nested */ */",
            "//! [`crate::gateway::Call`]\n/// crate::gateway::Call\nstruct S;",
            "const S: &str = \"crate::gateway::Call \\\" crate::gateway::Call\";",
            "const S: &str = r#\"a \" crate::gateway::Call\"#;",
            "const S: &[u8] = br\"crate::gateway::Call\";",
        ] {
            assert!(found("src/auth/mod.rs", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_literal_does_not_swallow_the_code_behind_it() {
        for text in [
            "const A: char = '\"'; use crate::gateway::Call;",
            "const A: char = '\\''; use crate::gateway::Call;",
            "fn f<'a>(a: &'a str) { crate::gateway::answer(a) }",
            "const A: &str = \"\\\\\"; use crate::gateway::Call;",
            "const A: &str = r\"\\\"; use crate::gateway::Call;",
            "fn f() { let r#type = 1; crate::gateway::answer(r#type) }",
        ] {
            assert_eq!(found("src/auth/mod.rs", text), [format!("1: {GATEWAY}")], "{text}");
        }
    }

    #[test]
    fn a_third_party_crate_stays_in_its_room() {
        let offence = ["1: `jsonwebtoken` belongs to auth, app, not to `gateway`"];
        for text in [
            "use jsonwebtoken::decode;",
            "use {jsonwebtoken::decode, std::fmt};",
            "use jsonwebtoken as jwt;",
            "fn f() { ::jsonwebtoken::decode() }",
            "fn f() -> Vec<jsonwebtoken::Header> { vec![] }",
        ] {
            assert_eq!(found("src/gateway/mod.rs", text), offence, "{text}");
            assert!(found("src/auth/jwt.rs", text).is_empty(), "{text}");
            assert!(found("src/gateway/tests.rs", text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_module_named_like_a_crate_is_not_the_crate() {
        let text = "use crate::telemetry::prometheus::X;\nfn f() { self::prometheus::g() }\n";
        assert!(found("src/gateway/mod.rs", text).is_empty());
    }

    #[test]
    fn a_room_outside_the_table_is_found() {
        assert_eq!(found("src/helpers.rs", ""), ["1: `helpers` is not a room of the table"]);
        let text = "use crate::helpers::X;\nuse crate::*;\n";
        let offences = found("src/auth/mod.rs", text);
        assert_eq!(offences[0], "1: `auth` may not import `helpers`");
        assert_eq!(offences[1], "2: `auth` may not import `*`");
    }

    #[test]
    fn the_last_rooms_see_everything_and_the_gateway_what_is_above_it() {
        assert!(found("src/app/mod.rs", "use crate::{demo::X, gateway::Y};").is_empty());
        assert!(found("src/main.rs", "use crate::cli::X;").is_empty());
        assert!(found("src/gateway/mod.rs", "use crate::{auth::X, net::Y};").is_empty());
        let offence = found("src/gateway/mod.rs", "use crate::config::X;");
        assert_eq!(offence, ["1: `gateway` may not import `config`"]);
    }

    #[test]
    fn manners_are_checked() {
        assert_eq!(ill_mannered("tests/it/x.rs", "use x;\n"), ["1: does not begin with `//!`"]);
        let unfinished = "//! x\nfn f() { todo!() }\nfn g() { dbg!(1); unimplemented!() }\n";
        let offences = ill_mannered("src/auth/x.rs", unfinished);
        assert_eq!(offences, ["2: `todo!`", "3: `dbg!`", "3: `unimplemented!`"]);
        let note = concat!("//! x\n// FIX", "ME later\n");
        assert_eq!(ill_mannered("loadtest/src/x.rs", note).len(), 1);
        assert!(ill_mannered("src/auth/x.rs", "//! x\n// todo!() in words\n").is_empty());
    }

    #[test]
    fn a_long_file_is_found_unless_it_is_a_test() {
        let long = format!("//! x\n{}", "\n".repeat(LONGEST_FILE));
        assert_eq!(ill_mannered("src/auth/x.rs", &long).len(), 1);
        assert!(ill_mannered("src/auth/tests.rs", &long).is_empty());
        assert!(ill_mannered("src/auth/tests/jwt.rs", &long).is_empty());
        assert!(ill_mannered("tests/it/x.rs", &long).is_empty());
    }
}
