//! The record of what calls cost in instructions: a file in the repository, by machine and build profile, so that a
//! commit that changes the cost shows it in its diff.

use super::place::{Count, JWT, KEY};
use anyhow::{Context as _, ensure};
use serde_json::{Map, Value, json};
use std::env::consts::{ARCH, OS};
use std::fs;
use std::path::Path;
use std::process::Command;

/// How far a count may be from its record, as a share of it, either way: an improvement is recorded, too, or what it
/// gained could be lost again unseen. Runs of one program are within 1 %.
const TOLERANCE: f64 = 0.05;

/// The same where another compiler made the program. What it changes is not the gateway's doing.
const TOLERANCE_OF_OTHERS: f64 = 0.15;

/// What the numbers depend on besides the source.
pub(crate) struct Build {
    /// `x86_64-linux, dev`: where it runs, and the profile of cargo.
    name: String,
    /// `1.95.0 (59807616e 2026-04-14)`.
    compiler: String,
}

impl Build {
    /// Of a program for this machine. Its compiler's version stands in the program itself.
    pub(crate) fn of(program: &Path, profile: &str) -> anyhow::Result<Self> {
        let mut readelf = Command::new("readelf");
        let output = readelf.args(["-p", ".comment"]).arg(program).output().context("readelf (binutils) is missing")?;
        let comment = String::from_utf8_lossy(&output.stdout);
        let version = comment.lines().find_map(|line| Some(line.split_once("rustc version ")?.1.trim()));
        let compiler = version.with_context(|| format!("no compiler's version in {}", program.display()))?.to_owned();
        Ok(Self { name: format!("{ARCH}-{OS}, {profile}"), compiler })
    }
}

/// The file's contents.
pub(crate) struct Record(Map<String, Value>);

impl Record {
    /// What `text`, a JSON object, records.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        Ok(Self(serde_json::from_str(text).context("the record is no JSON object")?))
    }

    /// Reads the file.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        Self::parse(&text)
    }

    /// Writes the file anew, with these counts instead of those that it had for this build.
    pub(crate) fn renew(mut self, file: &Path, build: &Build, counts: &[Count]) -> anyhow::Result<()> {
        let numbers: Map<_, _> =
            counts.iter().map(|count| (count.case.to_owned(), json!(count.instructions))).collect();
        self.0.insert(build.name.clone(), json!({ "compiler": build.compiler, "instructions of a call": numbers }));
        Ok(fs::write(file, format!("{:#}\n", Value::Object(self.0)))?)
    }

    /// What was recorded for a case of this build.
    pub(crate) fn of(&self, build: &Build, case: &str) -> Option<u64> {
        self.0.get(&build.name)?.get("instructions of a call")?.get(case)?.as_u64()
    }

    /// Whether each count is what was recorded.
    ///
    /// # Errors
    /// Names every case that is not, by how much, and how the record is renewed.
    pub(crate) fn judge(&self, build: &Build, counts: &[Count]) -> anyhow::Result<()> {
        let recorded = self.0.get(&build.name).and_then(|entry| entry.get("compiler")).and_then(Value::as_str);
        let same = recorded == Some(build.compiler.as_str());
        let bound = if same { TOLERANCE } else { TOLERANCE_OF_OTHERS };
        let offence = |count: &Count| {
            let Some(before) = self.of(build, count.case) else {
                return Some(format!("{}: {} now, never recorded", count.case, count.instructions));
            };
            let change = count.instructions as f64 / before as f64 - 1.0;
            let now = count.instructions;
            let told = || format!("{}: {before} recorded, {now} now ({:+.1} %)", count.case, change * 100.0);
            (change.abs() > bound).then(told)
        };
        let offences: Vec<String> = counts.iter().filter_map(offence).collect();
        let (name, compiler, recorded) = (&build.name, &build.compiler, recorded.unwrap_or("none"));
        ensure!(
            offences.is_empty(),
            "calls cost other numbers of instructions than tests/data/counts.json says ({name}; rustc {compiler}, \
             recorded with {recorded}; at most {:.0} % either way):\n  {}\nA call that became dearer wants a reason. \
             Where the change is meant, `make renew-counts` writes the file anew, to be committed with it.",
            bound * 100.0,
            offences.join("\n  "),
        );
        Ok(())
    }
}

/// A token that was checked before costs about what a key costs: at most `bound` more, as a share. Digests are left out:
/// a token's is longer, and what callgrind counts for them is not what they cost.
///
/// # Errors
/// Says by how much it costs more.
pub(crate) fn token_costs_like_key(counts: &[Count], bound: f64) -> anyhow::Result<()> {
    let of = |case| {
        counts
            .iter()
            .find(|count| count.case == case)
            .context(case)
            .map(|count| (count.instructions - count.digests) as f64)
    };
    let more = of(JWT)? / of(KEY)? - 1.0;
    ensure!(
        more <= bound,
        "a cached token costs {:.1} % more than an API key; {:.0} % are allowed",
        more * 100.0,
        bound * 100.0
    );
    Ok(())
}
