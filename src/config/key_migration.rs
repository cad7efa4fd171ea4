//! Rewrites a configuration file to the current names of its keys (`gatepost check --migrate`). Comments, order and
//! layout stay; only the keys change. The result is read again and must mean what the former text meant.

use super::{ConfigProblem, ConfigProblems, config_text::ConfigText};
use std::{fs, io, ops::Range, path::Path};

/// One use of a former name in a configuration text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RenamedKey {
    /// The path of the section that holds the key, in current names.
    pub(super) section: String,
    /// The name as it is written.
    pub(super) former: String,
    /// The current name; `a.b` is the key `b` of the nested section `a`.
    pub(super) current: &'static str,
    /// The line of the key.
    pub(super) line: u64,
    /// The bytes of the key and of its value.
    pub(super) key: Option<Range<usize>>,
    pub(super) value: Option<Range<usize>>,
}

impl RenamedKey {
    /// The warning for the operator.
    pub(super) fn warning(&self) -> ConfigProblem {
        let path = super::config_text::join_path(&self.section, &self.former);
        let current = super::config_text::join_path(&self.section, self.current);
        ConfigProblem {
            path,
            line: Some(self.line),
            message: format!("is now '{current}' (gatepost check --migrate rewrites the file)"),
        }
    }

    /// The nested section and the key in it, if the current name has both.
    fn nested(&self) -> Option<(&'static str, &'static str)> {
        self.current.split_once('.')
    }

    /// Whether both keys move into the same nested section.
    fn moves_with(&self, other: &Self) -> bool {
        let nested = self.nested().map(|(nested, _)| nested);
        nested.is_some() && nested == other.nested().map(|(nested, _)| nested) && self.section == other.section
    }
}

/// A configuration text in which every key has its current name.
#[derive(Debug)]
pub struct MigratedConfig {
    /// The text.
    pub text: String,
    /// Number of keys that were renamed.
    pub renamed: usize,
}

/// Gives the keys of a configuration text their current names; everything else stays as it is.
///
/// # Errors
/// The text is not YAML, writes both names of a key, or has a key that cannot be rewritten automatically.
pub fn migrate_text(text: &str) -> Result<MigratedConfig, ConfigProblems> {
    let source = ConfigText::parse(text).map_err(|problem| ConfigProblems(vec![problem]))?;
    if !source.conflicts().is_empty() {
        return Err(ConfigProblems(source.conflicts().to_vec()));
    }
    let text = rewrite(text, &source).map_err(|problem| ConfigProblems(vec![problem]))?;
    Ok(MigratedConfig { text, renamed: source.renamed_keys().len() })
}

/// Migrates the file at `path` in place, and returns the number of keys renamed. The file is replaced in one step and
/// keeps its permissions; a symbolic link keeps leading to it.
///
/// # Errors
/// As [`migrate_text`], or the file cannot be read or written; it is unchanged then.
pub fn migrate_file(path: &Path) -> Result<usize, ConfigProblems> {
    let MigratedConfig { text, renamed } = migrate_text(&super::read_text(path)?)?;
    if renamed > 0 {
        replace(path, &text).map_err(|why| super::file_problem(format!("cannot be written ({why})")))?;
    }
    Ok(renamed)
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = path.canonicalize()?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".migrating");
    let new = path.with_file_name(name);
    let written = fs::write(&new, text)
        .and_then(|()| fs::set_permissions(&new, fs::metadata(&path)?.permissions()))
        .and_then(|()| fs::rename(&new, &path));
    written.inspect_err(|_| drop(fs::remove_file(&new)))
}

/// Rewrites `text`, which was read as `source`.
///
/// # Errors
/// A key cannot be rewritten without changing what the file means, as in some one-line YAML forms.
fn rewrite(text: &str, source: &ConfigText) -> Result<String, ConfigProblem> {
    let renamed = source.renamed_keys();
    let by_hand = |key: &RenamedKey| {
        let warning = key.warning();
        let current = super::config_text::join_path(&key.section, key.current);
        ConfigProblem { message: format!("cannot be rewritten automatically (write it as '{current}')"), ..warning }
    };
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for (at, key) in renamed.iter().enumerate() {
        let group = NestedGroup::around(renamed, at);
        edits.extend(edits_for(text, key, &group).ok_or_else(|| by_hand(key))?);
    }
    edits.sort_by_key(|(range, _)| range.start);
    let mut rewritten = text.to_owned();
    for (range, new) in edits.into_iter().rev() {
        rewritten.replace_range(range, &new);
    }
    let same =
        ConfigText::parse(&rewritten).is_ok_and(|read| read.renamed_keys().is_empty() && read.value == source.value);
    match (same, renamed.first()) {
        (false, Some(first)) => Err(by_hand(first)),
        _ => Ok(rewritten),
    }
}

/// The renamed keys that move into one nested section together.
struct NestedGroup<'a> {
    first: bool,
    last: bool,
    previous: Option<&'a RenamedKey>,
}

impl<'a> NestedGroup<'a> {
    fn around(renamed: &'a [RenamedKey], at: usize) -> Self {
        let own = renamed.get(at);
        let is_same = |other: &&RenamedKey| own.is_some_and(|own| own.moves_with(other));
        let previous = at.checked_sub(1).and_then(|before| renamed.get(before)).filter(is_same);
        let next = renamed.get(at + 1).filter(is_same);
        Self { first: previous.is_none(), last: next.is_none(), previous }
    }
}

/// The edits that rename one key, or nothing where the text is not of a form that can be edited.
fn edits_for(text: &str, key: &RenamedKey, group: &NestedGroup<'_>) -> Option<Vec<(Range<usize>, String)>> {
    let range = key.key.clone()?;
    if text.get(range.clone())?.trim_matches(['"', '\'']) != key.former {
        return None;
    }
    let Some((nested, name)) = key.nested() else {
        return Some(vec![(range, key.current.to_owned())]);
    };
    if let Some(previous) = group.previous {
        // Only blanks and comments may stand between two keys that move together.
        let between = text.get(previous.value.clone()?.end..range.start)?;
        let is_blank = |line: &str| line.trim_matches([' ', '\t', '\r', ',']).is_empty();
        let mut lines = between.lines().map(|line| line.split_once('#').map_or(line, |(before, _)| before));
        if !lines.all(is_blank) {
            return None;
        }
    }
    let line_start = text.get(..range.start)?.rfind('\n').map_or(0, |at| at + 1);
    let before = text.get(line_start..range.start)?;
    let is_block = before.trim_start().chars().all(|c| c == '-' || c == ' ');
    let indent = " ".repeat(before.len() + 2);
    Some(match (is_block, group.first) {
        (true, true) => vec![(range, format!("{nested}:\n{indent}{name}"))],
        (true, false) => vec![(range, format!("  {name}"))],
        (false, first) => {
            let opening = if first { format!("{nested}: {{{name}") } else { name.to_owned() };
            let end = key.value.clone()?.end;
            let closing = group.last.then(|| (end..end, "}".to_owned()));
            std::iter::once((range, opening)).chain(closing).collect()
        }
    })
}

#[cfg(test)]
mod tests;
