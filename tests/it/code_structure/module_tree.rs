//! The modules of a crate with their items and imports: finds the file that defines what a path names.

use super::SourceFile;
use super::source_scanner::{self, PathUse, Token};
use std::collections::{BTreeSet, HashMap, HashSet};

/// Words that begin an item, before its name.
const ITEM_KEYWORDS: &[&str] = &["struct", "enum", "trait", "type", "fn", "const", "static", "macro_rules"];
/// Imports that are followed from one to the next: more than code has, so that a circle of imports ends.
const MAX_IMPORT_STEPS: usize = 20;

/// One file of a crate without its tests.
pub(super) struct CrateFile<'a> {
    pub(super) source: &'a SourceFile,
    pub(super) module: Vec<String>,
    pub(super) tokens: Vec<Token>,
    pub(super) paths: Vec<PathUse>,
}

/// One module: a file, or an inline module in it.
#[derive(Default)]
struct Module {
    file: usize,
    items: HashSet<String>,
    imports: Vec<ModuleImport>,
}

struct ModuleImport {
    /// `*` for all names of a module.
    name: String,
    path: Vec<String>,
}

/// The production code of one crate.
pub(super) struct ModuleTree<'a> {
    pub(super) files: Vec<CrateFile<'a>>,
    modules: HashMap<Vec<String>, Module>,
}

/// What a path names.
enum Named {
    Module(Vec<String>),
    Item(Item),
}

/// An item and the module that defines it.
struct Item {
    module: Vec<String>,
    name: String,
}

/// The place of an item: its file and its name there.
pub(super) struct Definition {
    pub(super) file: usize,
    pub(super) name: String,
}

impl<'a> ModuleTree<'a> {
    /// Reads the files of one crate. Test files and the modules behind `#[cfg(test)]` are left out.
    pub(super) fn new(sources: &'a [SourceFile]) -> Self {
        let mut files = Vec::new();
        let mut test_modules: Vec<Vec<String>> = Vec::new();
        // `main.rs` beside `lib.rs` is a crate of its own, of one file.
        let has_library = sources.iter().any(|source| source.path == "src/lib.rs");
        for source in sources.iter().filter(|source| !source.is_test()) {
            if has_library && source.path == "src/main.rs" {
                continue;
            }
            let module: Vec<String> = source.module_path().into_iter().map(str::to_owned).collect();
            let code = source_scanner::blank_comments_and_literals(&source.text);
            let code = source_scanner::without_test_items(source_scanner::tokenize(&code));
            test_modules.extend(code.test_modules.into_iter().map(|name| child(&module, &name)));
            let paths = source_scanner::find_paths(&code.tokens);
            files.push(CrateFile { source, module, tokens: code.tokens, paths });
        }
        files.retain(|file| !test_modules.iter().any(|test| file.module.starts_with(test)));
        let mut tree = Self { files, modules: HashMap::new() };
        for at in 0..tree.files.len() {
            tree.add_modules_of_file(at);
        }
        tree
    }

    fn add_modules_of_file(&mut self, at: usize) {
        let file = &self.files[at];
        let mut modules: HashMap<Vec<String>, Module> = HashMap::new();
        modules.insert(file.module.clone(), Module::default());
        for (module, item) in items(&file.tokens) {
            let module = [file.module.as_slice(), &module].concat();
            modules.entry(module).or_default().items.insert(item);
        }
        for path in &file.paths {
            let Some(import) = &path.import else { continue };
            let module = [file.module.as_slice(), &path.inline_modules].concat();
            let import = ModuleImport { name: import.name.clone(), path: path.segments.clone() };
            modules.entry(module).or_default().imports.push(import);
        }
        for (path, mut module) in modules {
            module.file = at;
            self.modules.insert(path, module);
        }
    }

    /// Returns where the item is defined that a path in `module` names, or none for what other crates define.
    pub(super) fn definition(&self, module: &[String], path: &[String]) -> Option<Definition> {
        match self.resolve(module, path, MAX_IMPORT_STEPS)? {
            Named::Item(item) => Some(Definition { file: self.modules.get(&item.module)?.file, name: item.name }),
            Named::Module(_) => None,
        }
    }

    /// Returns the names that the re-exports (`pub use`) of a module bring into it, where they are items.
    pub(super) fn reexported_names(&self, at: usize) -> BTreeSet<&str> {
        let file = &self.files[at];
        let reexports = file.paths.iter().filter_map(|path| path.import.as_ref()).filter(|import| import.is_reexport);
        reexports.map(|import| import.name.as_str()).collect()
    }

    fn resolve(&self, module: &[String], path: &[String], steps: usize) -> Option<Named> {
        let steps = steps.checked_sub(1)?;
        let (first, mut rest) = path.split_first()?;
        let mut found = match first.as_str() {
            "crate" => Named::Module(Vec::new()),
            "self" => Named::Module(module.to_vec()),
            "super" => Named::Module(parent(module)?),
            name => self.look_up(module, name, steps)?,
        };
        while let (Named::Module(at), Some((segment, more))) = (&found, rest.split_first()) {
            found = match segment.as_str() {
                "*" => return Some(found),
                "super" => Named::Module(parent(at)?),
                // What a macro defines is not seen: a name that a module must have is taken to be defined there.
                name => self.look_up(at, name, steps).or_else(|| self.macro_item(at, name))?,
            };
            rest = more;
        }
        Some(found)
    }

    fn macro_item(&self, module: &[String], name: &str) -> Option<Named> {
        let is_own = !module.is_empty() && self.modules.contains_key(module);
        is_own.then(|| Named::Item(Item { module: module.to_vec(), name: name.to_owned() }))
    }

    fn look_up(&self, module: &[String], name: &str, steps: usize) -> Option<Named> {
        let inner = child(module, name);
        if self.modules.contains_key(&inner) {
            return Some(Named::Module(inner));
        }
        let scope = self.modules.get(module)?;
        if scope.items.contains(name) {
            return Some(Named::Item(Item { module: module.to_vec(), name: name.to_owned() }));
        }
        if let Some(import) = scope.imports.iter().find(|import| import.name == name) {
            return self.resolve(module, &import.path, steps);
        }
        let globs = scope.imports.iter().filter(|import| import.name == "*");
        globs.filter_map(|glob| self.resolve(module, &glob.path, steps)).find_map(|named| match named {
            Named::Module(from) if from != module => self.look_up(&from, name, steps.checked_sub(1)?),
            _ => None,
        })
    }
}

fn child(module: &[String], name: &str) -> Vec<String> {
    let mut path = module.to_vec();
    path.push(name.to_owned());
    path
}

fn parent(module: &[String]) -> Option<Vec<String>> {
    let (_, parent) = module.split_last()?;
    Some(parent.to_vec())
}

/// Returns the items that a file defines outside of bodies, each with the inline modules around it.
fn items(tokens: &[Token]) -> Vec<(Vec<String>, String)> {
    let mut items = Vec::new();
    // One entry for each open bracket: the inline module that it opened, if it did.
    let mut open: Vec<Option<String>> = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "{" | "(" | "[" => open.push(source_scanner::opened_module(tokens, at).map(str::to_owned)),
            "}" | ")" | "]" => drop(open.pop()),
            keyword if ITEM_KEYWORDS.contains(&keyword) && open.iter().all(Option::is_some) => {
                let name = tokens[at + 1..].iter().find(|token| !matches!(token.text.as_str(), "!" | "mut"));
                // `const fn name` is found at its `fn`.
                let name = name.filter(|name| name.text != "fn");
                items.extend(name.map(|name| (open.iter().flatten().cloned().collect(), name.text.clone())));
            }
            _ => {}
        }
    }
    items
}
