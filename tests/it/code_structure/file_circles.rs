//! Rules of files inside a module: files that use items of each other form no circle, and an inherent `impl` stands in
//! the file that defines its type.

use super::module_tree::{CrateFile, Definition, ModuleTree};
use super::source_scanner::{Token, starts_with};
use super::{SourceFile, Violation};
use std::collections::{BTreeMap, BTreeSet};

/// For each file and each file that it uses: the names of what it uses.
type FileUses = BTreeMap<usize, BTreeMap<usize, BTreeSet<String>>>;

/// Returns one line for each circle of files inside one module: `a.rs -> b.rs: Name, other_name; b.rs -> a.rs: …`.
pub(super) fn file_circles(sources: &[SourceFile]) -> Vec<Violation> {
    let tree = ModuleTree::new(sources);
    let uses = file_uses(&tree);
    let circles = circles(&uses);
    circles.iter().map(|circle| describe_circle(&tree, &uses, circle)).collect()
}

fn describe_circle(tree: &ModuleTree<'_>, uses: &FileUses, circle: &BTreeSet<usize>) -> Violation {
    let mut edges = Vec::new();
    for from in circle {
        for (to, names) in uses.get(from).into_iter().flatten().filter(|(to, _)| circle.contains(to)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            edges.push(format!(
                "    {} -> {}: {}",
                tree.files[*from].source.path,
                tree.files[*to].source.path,
                names.join(", ")
            ));
        }
    }
    let first = circle.first().map_or("", |at| tree.files[*at].source.path.as_str());
    let what = format!("circle of {} files:\n{}", circle.len(), edges.join("\n"));
    Violation { file: first.to_owned(), line: 1, what }
}

fn file_uses(tree: &ModuleTree<'_>) -> FileUses {
    let mut uses = FileUses::new();
    for (from, file) in tree.files.iter().enumerate() {
        let mut add = |module: &[String], path: &[String]| {
            let is_elsewhere = |item: &Definition| {
                item.file != from && file.source.circle_scope() == tree.files[item.file].source.circle_scope()
            };
            if let Some(item) = tree.definition(module, path).filter(is_elsewhere) {
                uses.entry(from).or_default().entry(item.file).or_default().insert(item.name);
            }
        };
        for path in &file.paths {
            let module = [file.module.as_slice(), &path.inline_modules].concat();
            match &path.import {
                Some(import) if import.is_reexport => {}
                Some(import) if import.name == "*" => {
                    for name in bare_names(file) {
                        add(&module, &[name.to_owned()]);
                    }
                }
                _ => add(&module, &path.segments),
            }
        }
        let reexported = tree.reexported_names(from);
        for name in bare_names(file).into_iter().filter(|name| reexported.contains(name)) {
            add(&file.module, &[name.to_owned()]);
        }
    }
    uses
}

/// Returns the names that stand alone in the code of a file: not in a `use`, behind `.` or `::`, or as a field.
fn bare_names<'a>(file: &'a CrateFile<'_>) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    let mut is_use = false;
    for (at, token) in file.tokens.iter().enumerate() {
        let text_at = |at: Option<usize>| at.and_then(|at| file.tokens.get(at)).map_or("", |token| token.text.as_str());
        let (previous, next) = (text_at(at.checked_sub(1)), text_at(at.checked_add(1)));
        is_use = (is_use && token.text != ";") || (token.text == "use" && next != "<");
        let is_bare = !matches!(previous, "." | "::" | "fn" | "mod" | "'" | "let" | "mut") && next != ":";
        if !is_use && is_bare {
            names.insert(token.text.as_str());
        }
    }
    names
}

/// Returns the sets of files in which each file reaches every other.
fn circles(uses: &FileUses) -> Vec<BTreeSet<usize>> {
    let reachable: BTreeMap<usize, BTreeSet<usize>> =
        uses.keys().map(|from| (*from, reachable_files(uses, *from))).collect();
    let mut circles: Vec<BTreeSet<usize>> = Vec::new();
    for (from, reached) in &reachable {
        let is_mutual = |to: &&usize| reachable.get(to).is_some_and(|back| back.contains(from));
        let circle: BTreeSet<usize> = reached.iter().filter(is_mutual).copied().collect();
        if !circle.is_empty() && !circles.contains(&circle) {
            circles.push(circle);
        }
    }
    circles
}

fn reachable_files(uses: &FileUses, from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        let next = uses.get(&at).into_iter().flatten().map(|(to, _)| *to);
        open.extend(next.filter(|to| reached.insert(*to)));
    }
    reached
}

/// Returns the inherent `impl` blocks that do not stand in the file of their type.
pub(super) fn misplaced_impls(sources: &[SourceFile]) -> Vec<Violation> {
    let tree = ModuleTree::new(sources);
    let mut violations = Vec::new();
    for (at, file) in tree.files.iter().enumerate() {
        for implementation in inherent_impls(&file.tokens) {
            let definition = tree.definition(&file.module, &implementation.segments);
            if let Some(item) = definition.filter(|item| item.file != at) {
                let place = &tree.files[item.file].source.path;
                let what = format!("`impl {}` belongs to {place}, which defines it", item.name);
                violations.push(file.source.violation(implementation.line, what));
            }
        }
    }
    violations
}

struct InherentImpl {
    line: usize,
    segments: Vec<String>,
}

/// Returns the `impl` blocks without a trait, outside of bodies.
fn inherent_impls(tokens: &[Token]) -> Vec<InherentImpl> {
    let mut found = Vec::new();
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth = depth.saturating_sub(1),
            "impl" if depth == 0 => found.extend(inherent_impl(tokens, at)),
            _ => {}
        }
    }
    found
}

fn inherent_impl(tokens: &[Token], at: usize) -> Option<InherentImpl> {
    let mut angles = 0_usize;
    let mut segments = Vec::new();
    for (place, token) in tokens.iter().enumerate().skip(at + 1) {
        match token.text.as_str() {
            "<" => angles += 1,
            ">" if !starts_with(tokens, place - 1, &["-"]) => angles = angles.saturating_sub(1),
            "for" if angles == 0 => return None,
            "{" | "where" if angles == 0 => break,
            name if angles == 0 && name.starts_with(|first: char| first.is_alphabetic() || first == '_') => {
                segments.push(name.to_owned());
            }
            _ => {}
        }
    }
    Some(InherentImpl { line: tokens[at].line, segments })
}

/// Tests of the rules, on small crates that violate them.
#[cfg(test)]
mod rules {
    use super::{file_circles, misplaced_impls};
    use crate::code_structure::SourceFile;

    fn sources(files: &[(&str, &str)]) -> Vec<SourceFile> {
        let source =
            |(path, text): &(&str, &str)| SourceFile { path: format!("src/auth/{path}"), text: (*text).to_owned() };
        files.iter().map(source).collect()
    }

    /// Returns the edges of the circles in a small module.
    fn circle_edges(files: &[(&str, &str)]) -> Vec<String> {
        let sources = sources(files);
        let circles = file_circles(&sources);
        circles.iter().flat_map(|circle| circle.what.lines().skip(1)).map(|edge| edge.trim().to_owned()).collect()
    }

    #[test]
    fn two_files_that_use_each_other_are_a_circle() {
        let edges = circle_edges(&[
            ("mod.rs", "mod one;\nmod two;\n"),
            ("one.rs", "use super::two::{Other, other_name};\npub(super) struct One;"),
            ("two.rs", "pub(super) struct Other(super::one::One);\npub(super) fn other_name() {}"),
        ]);
        assert_eq!(
            edges,
            ["src/auth/one.rs -> src/auth/two.rs: Other, other_name", "src/auth/two.rs -> src/auth/one.rs: One"]
        );
    }

    #[test]
    fn a_circle_of_three_has_three_edges() {
        let edges = circle_edges(&[
            ("mod.rs", "mod one;\nmod two;\nmod three;\nmod leaf;\n"),
            ("one.rs", "use crate::auth::two::Two; use super::leaf::Leaf; struct One;"),
            ("two.rs", "use super::leaf::Leaf; pub struct Two; fn f() { super::three::three() }"),
            ("three.rs", "use super::one; pub fn three() -> one::One {}"),
            ("leaf.rs", "pub struct Leaf;"),
        ]);
        assert_eq!(
            edges,
            [
                "src/auth/one.rs -> src/auth/two.rs: Two",
                "src/auth/two.rs -> src/auth/three.rs: three",
                "src/auth/three.rs -> src/auth/one.rs: One",
            ]
            .map(str::to_owned)
            .to_vec()
        );
    }

    #[test]
    fn a_reexport_is_followed_to_the_file_that_defines_the_item() {
        let edges = circle_edges(&[
            ("mod.rs", "mod one;\nmod two;\npub use one::One as First;\npub(super) use two::Two;\n"),
            ("one.rs", "use super::Two; pub struct One;"),
            ("two.rs", "use super::First; pub struct Two;"),
        ]);
        assert_eq!(edges, ["src/auth/one.rs -> src/auth/two.rs: Two", "src/auth/two.rs -> src/auth/one.rs: One"]);
    }

    #[test]
    fn a_type_in_mod_rs_that_uses_its_children_is_a_circle() {
        let edges = circle_edges(&[
            ("mod.rs", "mod one;\npub use one::One;\npub struct Whole { one: One }\n"),
            ("one.rs", "use super::Whole; pub struct One;"),
        ]);
        assert_eq!(edges, ["src/auth/mod.rs -> src/auth/one.rs: One", "src/auth/one.rs -> src/auth/mod.rs: Whole"]);
        let inner = circle_edges(&[
            ("mod.rs", "mod one;\nfn whole() { one::inner::run() }\n"),
            ("one/mod.rs", "pub(super) mod inner;"),
            ("one/inner.rs", "pub fn run() { crate::auth::whole() }"),
        ]);
        assert_eq!(inner.len(), 2, "{inner:?}");
    }

    #[test]
    fn a_macro_defined_item_is_of_the_file_that_a_path_names() {
        let edges = circle_edges(&[
            ("mod.rs", "mod one;\nmod two;\n"),
            ("one.rs", "use super::two::f; codes! { Code { A } }"),
            ("two.rs", "use super::one::Code; pub fn f() {}"),
        ]);
        assert_eq!(edges.len(), 2, "{edges:?}");
    }

    #[test]
    fn shared_leaves_reexports_tests_and_other_modules_are_no_circle() {
        let edges = circle_edges(&[
            (
                "mod.rs",
                "mod one;\nmod two;\nmod leaf;\npub use one::One;\npub use two::{Two, two};\n#[cfg(test)]\nmod test_tools;\n",
            ),
            ("one.rs", "use super::leaf::Leaf; use super::Two; use std::fmt; pub struct One;"),
            ("two.rs", "use super::leaf::{self, Leaf}; pub struct Two; fn two() { leaf::name() }"),
            (
                "leaf.rs",
                "pub struct Leaf; pub fn name() {}\n#[cfg(test)]\nmod tests { use super::super::One; }\n#[cfg(test)]\nimpl Leaf { fn f() { super::One } }",
            ),
            ("test_tools.rs", "use super::One; pub struct Tool;"),
            ("tests.rs", "use super::Whole;"),
            ("../net/mod.rs", "use crate::auth::One; pub struct Net;"),
        ]);
        assert!(edges.is_empty(), "{edges:?}");
    }

    #[test]
    fn an_inherent_impl_in_another_file_is_found() {
        let sources = sources(&[
            ("mod.rs", "mod one;\nmod two;\npub use one::One;\n"),
            ("one.rs", "pub struct One<T>(T);\nimpl<T: Fn() -> u8> One<T> {}\n#[cfg(test)]\nimpl super::two::Two {}\n"),
            (
                "two.rs",
                "use super::One;\npub struct Two;\nimpl One<u8> { fn f() {} }\nimpl<T> From<One<T>> for Two {}\nimpl Two {}\nimpl super::One<u16> where u8: Copy {}",
            ),
        ]);
        let violations = misplaced_impls(&sources);
        let lines: Vec<usize> = violations.iter().map(|violation| violation.line).collect();
        assert_eq!(lines, [3, 6], "{violations:?}");
        assert_eq!(violations[0].what, "`impl One` belongs to src/auth/one.rs, which defines it");
    }
}
