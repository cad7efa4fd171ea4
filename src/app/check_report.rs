//! `gatepost check`: what is to be said of a configuration and of everything it refers to.

use super::{GatewayAssembly, build_runtime, configuration_check};
use crate::{
    agent::AgentId,
    config::{self, ConfigProblems, LoadedConfig},
    doctor::{self, ConfigWarning, ExaminedConfig},
    values::{format_count, visible_text},
};
use anyhow::{Context, anyhow};
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

/// Implements `gatepost check`: validates everything that `run` validates, and prints the report. With `strict`, warnings
/// and notes are an error.
///
/// # Errors
/// As [`CheckReport::create`], and with `strict` if there are warnings or notes.
pub fn check(config: &Path, strict: bool) -> anyhow::Result<()> {
    let report = CheckReport::create(config)?;
    report.print();
    match report.findings.len() {
        count if strict && count > 0 => {
            let warnings = format_count(count, "warning");
            Err(anyhow!("{}: {warnings} (listed above; --strict allows none)", config.display()))
        }
        _ => Ok(()),
    }
}

/// What is to be said of a valid configuration.
pub struct CheckReport {
    config: PathBuf,
    /// Warnings and notes, one line each.
    findings: Vec<String>,
    agents: HashSet<AgentId>,
    /// The files and other parts of sources that have a document which is not served.
    rejected_parts: HashSet<PathBuf>,
}

impl CheckReport {
    /// Checks a configuration. Opens no listener, writes no file, and fetches no agents from other machines.
    ///
    /// # Errors
    /// Every problem, each with its position in the file.
    pub fn create(config: &Path) -> anyhow::Result<Self> {
        let result = build_runtime()?.block_on(async {
            let mut loaded = LoadedConfig::read(config).map_err(name_codes)?;
            let checked = configuration_check::check_configuration(&mut loaded).await;
            match (checked.assembly, checked.problems) {
                (Some(assembly), problems) if problems.is_empty() => Ok((assembly, loaded)),
                (_, problems) => Err(name_codes(loaded.locate_problems(problems))),
            }
        });
        let (assembly, loaded) = result.with_context(|| config.display().to_string())?;
        let snapshot = assembly.gateway.catalogue.snapshot();
        let rejected = snapshot.rejected.iter().chain(&snapshot.unsupported);
        Ok(Self {
            config: config.to_owned(),
            findings: list_findings(ExaminedConfig { loaded: &loaded, file: config }, &assembly),
            agents: snapshot.iter().map(|(id, _)| id.clone()).collect(),
            rejected_parts: rejected.map(|document| PathBuf::from(&*document.part)).collect(),
        })
    }

    /// Whether the agent is served, by the document in `file`.
    pub fn serves(&self, id: &AgentId, file: &Path) -> bool {
        self.agents.contains(id) && !self.rejected_parts.contains(file)
    }

    /// Returns the warnings and notes, one line each.
    pub fn findings(&self) -> &[String] {
        &self.findings
    }

    /// Prints the warnings and notes, and the number of agents.
    pub fn print(&self) {
        for finding in &self.findings {
            println!("{}", visible_text(finding));
        }
        println!("{}: valid, {}", self.config.display(), format_count(self.agents.len(), "agent"));
    }
}

fn list_findings(examined: ExaminedConfig<'_>, assembly: &GatewayAssembly) -> Vec<String> {
    let of_check = doctor::check_findings(examined, &assembly.gateway);
    let mut warnings = doctor::locate_config_warnings(examined.loaded, examined.file);
    warnings.extend(of_check.warnings);
    warnings.sort_by_key(|warning| warning.problem.line);
    let warnings =
        warnings.iter().map(|ConfigWarning { code, problem }| format!("{}: {problem} [{code}]", code.row().severity));
    let notes = assembly.notes();
    let notes = notes.iter().map(|note| {
        let code = note.code.map(|code| format!(" [{code}]")).unwrap_or_default();
        format!("note: {}{code}", config::strip_os_error_codes(&note.text))
    });
    let of_documents = of_check.notes.iter();
    let of_documents =
        of_documents.map(|finding| format!("note: {}: {} [{}]", finding.place, finding.problem, finding.code));
    warnings.chain(notes).chain(of_documents).collect()
}

/// Adds the code of each problem to its text.
fn name_codes(mut problems: ConfigProblems) -> ConfigProblems {
    for problem in &mut problems.0 {
        problem.message = format!("{} [{}]", problem.message, doctor::code_of_problem(problem));
    }
    problems
}
