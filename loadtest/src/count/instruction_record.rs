//! The record of what calls cost in instructions: a file in the repository, by platform and build profile. A commit
//! that changes the cost shows the change in its diff.

use super::cases::{API_KEY_CASE, CACHED_JWT_CASE, CaseCount};
use anyhow::{Context as _, ensure};
use serde_json::{Map, Value, json};
use std::env::consts::{ARCH, OS};
use std::fs;
use std::path::Path;
use std::process::Command;

/// How far a count may differ from its record, as a share, in either direction. An improvement must be recorded, too,
/// or it could be lost again unnoticed. Runs of one program differ by less than 1 %.
const TOLERANCE: f64 = 0.05;

/// The tolerance where another compiler built the program, because the compiler changes the counts, too.
const TOLERANCE_OTHER_COMPILER: f64 = 0.15;

/// What the counts depend on besides the source.
pub(crate) struct BuildInfo {
    /// The platform, and the profile of cargo: `x86_64-linux, dev`.
    name: String,
    /// `1.95.0 (59807616e 2026-04-14)`.
    compiler: String,
}

impl BuildInfo {
    /// Reads the compiler's version from a program for this machine.
    pub(crate) fn read(program: &Path, profile: &str) -> anyhow::Result<Self> {
        let mut readelf = Command::new("readelf");
        let output = readelf.args(["-p", ".comment"]).arg(program).output().context("readelf (binutils) is missing")?;
        let comment = String::from_utf8_lossy(&output.stdout);
        let version = comment.lines().find_map(|line| Some(line.split_once("rustc version ")?.1.trim()));
        let compiler = version.with_context(|| format!("no compiler version in {}", program.display()))?.to_owned();
        Ok(Self { name: format!("{ARCH}-{OS}, {profile}"), compiler })
    }
}

/// The contents of the record file.
pub(crate) struct InstructionRecord(Map<String, Value>);

impl InstructionRecord {
    /// Parses a record, which is a JSON object.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        Ok(Self(serde_json::from_str(text).context("the record is not a JSON object")?))
    }

    /// Reads the record file.
    pub(crate) fn read(file: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
        Self::parse(&text)
    }

    /// Replaces the counts of this build and writes the file.
    pub(crate) fn update(mut self, file: &Path, build: &BuildInfo, counts: &[CaseCount]) -> anyhow::Result<()> {
        let numbers: Map<_, _> =
            counts.iter().map(|count| (count.case.to_owned(), json!(count.instructions))).collect();
        self.0.insert(build.name.clone(), json!({ "compiler": build.compiler, "instructions of a call": numbers }));
        Ok(fs::write(file, format!("{:#}\n", Value::Object(self.0)))?)
    }

    /// Returns the recorded count of a case of this build.
    pub(crate) fn count_of(&self, build: &BuildInfo, case: &str) -> Option<u64> {
        self.0.get(&build.name)?.get("instructions of a call")?.get(case)?.as_u64()
    }

    /// Compares the counts with the record.
    ///
    /// # Errors
    /// Names every case outside the tolerance, its difference, and how to update the record.
    pub(crate) fn check(&self, build: &BuildInfo, counts: &[CaseCount]) -> anyhow::Result<()> {
        let recorded = self.0.get(&build.name).and_then(|entry| entry.get("compiler")).and_then(Value::as_str);
        let is_same_compiler = recorded == Some(build.compiler.as_str());
        let tolerance = if is_same_compiler { TOLERANCE } else { TOLERANCE_OTHER_COMPILER };
        let difference = |count: &CaseCount| {
            let Some(before) = self.count_of(build, count.case) else {
                return Some(format!("{}: {} now, never recorded", count.case, count.instructions));
            };
            let change = count.instructions as f64 / before as f64 - 1.0;
            let now = count.instructions;
            let message = || format!("{}: {before} recorded, {now} now ({:+.1} %)", count.case, change * 100.0);
            (change.abs() > tolerance).then(message)
        };
        let differences: Vec<String> = counts.iter().filter_map(difference).collect();
        let (name, compiler, recorded) = (&build.name, &build.compiler, recorded.unwrap_or("none"));
        ensure!(
            differences.is_empty(),
            "the instructions of a call differ from tests/data/counts.json ({name}; rustc {compiler}, recorded with \
             {recorded}; tolerance: at most {:.0} % in either direction):\n  {}\nIf the change is intended, run \
             `make renew-counts` and commit the file with the change.",
            tolerance * 100.0,
            differences.join("\n  "),
        );
        Ok(())
    }
}

/// Checks that a cached token costs at most `max_excess` more than an API key, as a share. Digests are left out: a
/// token's digest covers more bytes, and callgrind's count for a digest is far above its real cost.
///
/// # Errors Names the excess.
pub(crate) fn check_token_cost(counts: &[CaseCount], max_excess: f64) -> anyhow::Result<()> {
    let instructions_of = |case| {
        counts
            .iter()
            .find(|count| count.case == case)
            .context(case)
            .map(|count| (count.instructions - count.digests) as f64)
    };
    let excess = instructions_of(CACHED_JWT_CASE)? / instructions_of(API_KEY_CASE)? - 1.0;
    ensure!(
        excess <= max_excess,
        "a cached token costs {:.1} % more than an API key (at most {:.0} % is allowed)",
        excess * 100.0,
        max_excess * 100.0
    );
    Ok(())
}
