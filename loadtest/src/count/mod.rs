//! `count`: what a call costs in instructions, for one build or for several. Unlike a time, the number is the same in
//! every run, so that a change of one per cent is visible at once.

mod callgrind;
mod cases;
mod instruction_record;

use crate::{gatepost, request_body, statistics, token_issuer};
use anyhow::Context as _;
use cases::CaseCount;
use instruction_record::{BuildInfo, InstructionRecord};
use std::fs;
use std::path::PathBuf;

/// How much more a cached token may cost than an API key, as a share.
const MAX_TOKEN_EXCESS: f64 = 0.05;

const RELEASE_PROFILE: &str = "release";

/// What to count.
#[derive(clap::Args)]
pub(crate) struct CountArgs {
    /// Builds of the gateway; each is compared with the first. Default: the gateway beside this program.
    programs: Vec<PathBuf>,
    /// Calls in each of the three windows of a case.
    #[arg(long, default_value_t = 500)]
    calls: u32,
    /// The cargo profile of the build, which is part of its name in the record.
    #[arg(long, default_value = RELEASE_PROFILE)]
    profile: String,
    /// Keep callgrind's dumps in this new folder, for `callgrind_annotate`: three for each case, numbered
    /// in order.
    #[arg(long)]
    dumps: Option<PathBuf>,
    /// Fail if the first build's counts differ from this record.
    #[arg(long)]
    check: Option<PathBuf>,
    /// Write the first build's counts into this record.
    #[arg(long, conflicts_with = "check")]
    renew: Option<PathBuf>,
}

pub(crate) fn run(args: &CountArgs) -> anyhow::Result<()> {
    let programs = if args.programs.is_empty() { vec![gatepost::sibling_program()?] } else { args.programs.clone() };
    let build = BuildInfo::read(programs.first().context("no build to count")?, &args.profile)?;
    let temporary = tempfile::tempdir()?;
    let folder = args.dumps.as_deref().unwrap_or_else(|| temporary.path());
    let count = |(number, program): (usize, &PathBuf)| {
        let folder = folder.join(format!("{number}"));
        fs::create_dir_all(&folder)?;
        cases::count_cases(program, args.calls, &folder).with_context(|| program.display().to_string())
    };
    let columns = (1..).zip(&programs).map(count).collect::<anyhow::Result<Vec<_>>>()?;
    let counts = columns.first().context("no build to count")?;
    println!("{}", comparison_table(&programs, &columns));
    if let Some(file) = &args.renew {
        InstructionRecord::read(file)?.update(file, &build, counts)?;
    }
    if let Some(file) = &args.check {
        InstructionRecord::read(file)?.check(&build, counts)?;
    }
    // A build without optimisations spends most of a token's cost where an optimised one spends nothing.
    if args.profile == RELEASE_PROFILE {
        instruction_record::check_token_cost(counts, MAX_TOKEN_EXCESS)?;
    }
    Ok(())
}

/// Formats a row for each case, with the count of each build and its ratio to the first build's.
fn comparison_table(programs: &[PathBuf], columns: &[Vec<CaseCount>]) -> String {
    let names: Vec<String> = programs.iter().map(|program| program.display().to_string()).collect();
    let mut header = vec!["instructions of a call"];
    for name in &names {
        header.extend([name.as_str(), "windows within", "× first"]);
    }
    let first = columns.first().map(Vec::as_slice).unwrap_or_default();
    let row = |(index, first): (usize, &CaseCount)| {
        let mut row = vec![first.case.to_owned()];
        for count in columns.iter().filter_map(|column| column.get(index)) {
            let ratio = count.instructions as f64 / first.instructions as f64;
            let spread = format!("{:.2} %", count.spread * 100.0);
            row.extend([count.instructions.to_string(), spread, format!("{ratio:.3}")]);
        }
        row
    };
    statistics::markdown_table(&header, &first.iter().enumerate().map(row).collect::<Vec<_>>())
}
