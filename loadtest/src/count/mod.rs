//! `count`: what a call costs in instructions, of one build or of two beside each other. Unlike a time, the number is
//! the same on every run, so that a change of one per cent is seen at once.

mod gauge;
mod place;
mod record;

use crate::{figures, gatepost, question, token};
use anyhow::Context as _;
use place::Count;
use record::{Build, Record};
use std::fs;
use std::path::PathBuf;

/// How much more a cached token may cost than an API key, as a share.
const TOKEN: f64 = 0.05;

/// What to count.
#[derive(clap::Args)]
pub(crate) struct Plan {
    /// Builds of the gateway, compared with the first; the one beside this program unless given.
    programs: Vec<PathBuf>,
    /// Calls in each of a case's three windows.
    #[arg(long, default_value_t = 500)]
    calls: u32,
    /// The build's profile, by which it stands in the record.
    #[arg(long, default_value = "release")]
    profile: String,
    /// Leave callgrind's dumps in this new folder, for `callgrind_annotate`: three of each case, numbered
    /// in order.
    #[arg(long)]
    dumps: Option<PathBuf>,
    /// Fail where the first build's counts are not those of this record.
    #[arg(long)]
    check: Option<PathBuf>,
    /// Write the first build's counts to this record.
    #[arg(long, conflicts_with = "check")]
    renew: Option<PathBuf>,
}

pub(crate) fn run(plan: &Plan) -> anyhow::Result<()> {
    let programs = if plan.programs.is_empty() { vec![gatepost::beside()?] } else { plan.programs.clone() };
    let build = Build::of(programs.first().context("a build to count")?, &plan.profile)?;
    let temporary = tempfile::tempdir()?;
    let folder = plan.dumps.as_deref().unwrap_or_else(|| temporary.path());
    let counted = |(number, program): (usize, &PathBuf)| {
        let folder = folder.join(format!("{number}"));
        fs::create_dir_all(&folder)?;
        place::count(program, plan.calls, &folder).with_context(|| program.display().to_string())
    };
    let columns = (1..).zip(&programs).map(counted).collect::<anyhow::Result<Vec<_>>>()?;
    let counts = columns.first().context("a build to count")?;
    println!("{}", table(&programs, &columns));
    if let Some(file) = &plan.renew {
        Record::read(file)?.renew(file, &build, counts)?;
    }
    if let Some(file) = &plan.check {
        Record::read(file)?.judge(&build, counts)?;
    }
    record::token_costs_like_key(counts, TOKEN)
}

/// A line for each case, and for each build its count and how it compares with the first's.
fn table(programs: &[PathBuf], columns: &[Vec<Count>]) -> String {
    let names: Vec<String> = programs.iter().map(|program| program.display().to_string()).collect();
    let mut head = vec!["instructions of a call"];
    for name in &names {
        head.extend([name.as_str(), "windows within", "× first"]);
    }
    let first = columns.first().map(Vec::as_slice).unwrap_or_default();
    let row = |(line, one): (usize, &Count)| {
        let mut row = vec![one.case.to_owned()];
        for count in columns.iter().filter_map(|column| column.get(line)) {
            let ratio = count.instructions as f64 / one.instructions as f64;
            let spread = format!("{:.2} %", count.spread * 100.0);
            row.extend([count.instructions.to_string(), spread, format!("{ratio:.3}")]);
        }
        row
    };
    figures::table(&head, &first.iter().enumerate().map(row).collect::<Vec<_>>())
}
