//! Rewrites the keys of a configuration file to their current names (`gatepost check --migrate`). Comments, order and
//! layout stay. The result is parsed, and must have the same value as the former text.

use super::{
    config_file,
    config_problem::{ConfigProblem, ConfigProblems},
    key_path::join_path,
    renamed_key::RenamedKey,
    yaml_text::ConfigText,
};
use std::{
    fs,
    io::{self, Write as _},
    ops::Range,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// A configuration text in which every key has its current name.
#[derive(Debug)]
pub struct MigratedConfig {
    /// The rewritten text.
    pub text: String,
    /// Number of keys that were renamed.
    pub renamed: usize,
}

/// Gives the keys of a configuration text their current names. The rest of the text is unchanged.
///
/// # Errors
/// The text is not YAML, writes both names of a key, or has a key that cannot be rewritten automatically.
pub fn migrate_text(text: &str) -> Result<MigratedConfig, ConfigProblems> {
    let config_text = ConfigText::parse(text).map_err(|problem| ConfigProblems(vec![problem]))?;
    if !config_text.conflicts().is_empty() {
        return Err(ConfigProblems(config_text.conflicts().to_vec()));
    }
    let text = rewrite(text, &config_text).map_err(|problem| ConfigProblems(vec![problem]))?;
    Ok(MigratedConfig { text, renamed: config_text.renamed_keys().len() })
}

/// Migrates the file at `path` and returns the number of renamed keys. Replaces the file atomically and keeps its
/// permissions; behind a symbolic link, replaces the target.
///
/// # Errors
/// As [`migrate_text`], or the file cannot be read or written; it is unchanged then.
pub fn migrate_file(path: &Path) -> Result<usize, ConfigProblems> {
    let MigratedConfig { text, renamed } = migrate_text(&config_file::read_text(path)?)?;
    if renamed > 0 {
        replace(path, &text).map_err(|why| config_file::file_problem(format!("cannot be written ({why})")))?;
    }
    Ok(renamed)
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = path.canonicalize()?;
    let mut file_name = path.file_name().unwrap_or_default().to_owned();
    file_name.push(".migrating");
    let migrated_path = path.with_file_name(file_name);
    // Private until it has the permissions of the file, which its owner alone may be allowed to read.
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&migrated_path);
    let result = opened
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::set_permissions(&migrated_path, fs::metadata(&path)?.permissions()))
        .and_then(|()| fs::rename(&migrated_path, &path));
    result.inspect_err(|_| drop(fs::remove_file(&migrated_path)))
}

/// Rewrites `text`, which was parsed as `config_text`.
///
/// # Errors
/// A key cannot be rewritten without a change of the value, as in some flow mappings.
fn rewrite(text: &str, config_text: &ConfigText) -> Result<String, ConfigProblem> {
    let renamed = config_text.renamed_keys();
    let cannot_rewrite = |key: &RenamedKey| {
        let warning = key.warning();
        let current = join_path(&key.section, key.current);
        ConfigProblem { message: format!("cannot be rewritten automatically (write it as '{current}')"), ..warning }
    };
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for (at, key) in renamed.iter().enumerate() {
        let group = NestedGroup::around(renamed, at);
        edits.extend(edits_for(text, key, &group).ok_or_else(|| cannot_rewrite(key))?);
    }
    edits.sort_by_key(|(range, _)| range.start);
    let mut rewritten = text.to_owned();
    for (range, replacement) in edits.into_iter().rev() {
        rewritten.replace_range(range, &replacement);
    }
    let is_equivalent = ConfigText::parse(&rewritten)
        .is_ok_and(|read| read.renamed_keys().is_empty() && read.value == config_text.value);
    match (is_equivalent, renamed.first()) {
        (false, Some(first)) => Err(cannot_rewrite(first)),
        _ => Ok(rewritten),
    }
}

/// The position of a renamed key among adjacent keys that move into the same nested section.
struct NestedGroup<'a> {
    is_first: bool,
    is_last: bool,
    previous: Option<&'a RenamedKey>,
}

impl<'a> NestedGroup<'a> {
    fn around(renamed: &'a [RenamedKey], at: usize) -> Self {
        let key = renamed.get(at);
        let is_same = |neighbour: &&RenamedKey| key.is_some_and(|key| key.moves_with(neighbour));
        let previous = at.checked_sub(1).and_then(|index| renamed.get(index)).filter(is_same);
        let next = renamed.get(at + 1).filter(is_same);
        Self { is_first: previous.is_none(), is_last: next.is_none(), previous }
    }
}

/// Returns the edits that rename one key, or `None` if the form of the text is not supported.
fn edits_for(text: &str, key: &RenamedKey, group: &NestedGroup<'_>) -> Option<Vec<(Range<usize>, String)>> {
    let range = key.key.clone()?;
    if text.get(range.clone())?.trim_matches(['"', '\'']) != key.former {
        return None;
    }
    let Some((nested, name)) = key.nested() else {
        return Some(vec![(range, key.current.to_owned())]);
    };
    if let Some(previous) = group.previous {
        // Between two keys that move together, only blanks and comments are supported.
        let between = text.get(previous.value.clone()?.end..range.start)?;
        let is_blank = |line: &str| line.trim_matches([' ', '\t', '\r', ',']).is_empty();
        let mut lines = between.lines().map(|line| line.split_once('#').map_or(line, |(before, _)| before));
        if !lines.all(is_blank) {
            return None;
        }
    }
    let line_start = text.get(..range.start)?.rfind('\n').map_or(0, |at| at + 1);
    let line_prefix = text.get(line_start..range.start)?;
    let is_block = line_prefix.trim_start().chars().all(|c| c == '-' || c == ' ');
    let indent = " ".repeat(line_prefix.len() + 2);
    Some(match (is_block, group.is_first) {
        (true, true) => vec![(range, format!("{nested}:\n{indent}{name}"))],
        (true, false) => vec![(range, format!("  {name}"))],
        (false, is_first) => {
            let opening = if is_first { format!("{nested}: {{{name}") } else { name.to_owned() };
            let end = key.value.clone()?.end;
            let closing = group.is_last.then(|| (end..end, "}".to_owned()));
            std::iter::once((range, opening)).chain(closing).collect()
        }
    })
}

#[cfg(test)]
mod tests;
