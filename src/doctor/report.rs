//! The report of an examination, as text and as JSON.

use super::{
    finding::Finding,
    finding_codes::{FindingCode, Severity},
};
use crate::values::format_count;
use serde_json::{Value, json};
use std::cmp::Reverse;

/// The findings of an examination, the most important first.
#[derive(Debug, Default)]
pub struct DoctorReport {
    findings: Vec<Finding>,
    /// The number of agents that were examined.
    pub examined_agents: usize,
    /// The number of agents that are inactive, and so were not examined.
    pub inactive_agents: usize,
}

impl DoctorReport {
    /// Creates a report. Of equal findings, one is kept.
    pub fn new(mut findings: Vec<Finding>, examined_agents: usize) -> Self {
        findings.sort_by(|one, other| {
            let key = |finding: &Finding| (Reverse(finding.severity()), finding.place.clone(), finding.code);
            key(one).cmp(&key(other)).then_with(|| one.name.cmp(&other.name))
        });
        findings.dedup();
        Self { findings, examined_agents, inactive_agents: 0 }
    }

    /// Returns the findings.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Returns whether a finding has this severity or a higher one.
    pub fn reaches(&self, threshold: Severity) -> bool {
        self.findings.iter().any(|finding| finding.severity() >= threshold)
    }

    /// Returns the report as text.
    pub fn to_text(&self) -> String {
        let findings: String = self.findings.iter().map(|finding| format!("{}\n", finding.to_text())).collect();
        let count = |severity, noun| format_count(self.count(severity), noun);
        let inactive = match self.inactive_agents {
            0 => String::new(),
            count => format!(", {count} inactive"),
        };
        format!(
            "{findings}{}, {}, {}; {} examined{inactive}",
            count(Severity::Error, "error"),
            count(Severity::Warning, "warning"),
            count(Severity::Info, "note"),
            format_count(self.examined_agents, "agent")
        )
    }

    /// Returns the report as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "findings": self.findings.iter().map(Finding::to_json).collect::<Vec<_>>(),
            "summary": {
                "errors": self.count(Severity::Error),
                "warnings": self.count(Severity::Warning),
                "info": self.count(Severity::Info),
                "agents_examined": self.examined_agents,
                "agents_inactive": self.inactive_agents,
            },
        })
    }

    fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity() == severity).count()
    }
}

/// Returns the table of codes as text.
pub fn list_codes() -> String {
    let line = |code: &FindingCode| {
        let row = code.row();
        format!("{} {:7} {} ({})\n", row.code, row.severity.as_str(), row.meaning, row.fix)
    };
    FindingCode::ALL.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::{Place, SubjectKind};

    #[test]
    fn a_summary_has_one_thing_in_the_singular() {
        let finding = Finding::new(FindingCode::AdminExposed, SubjectKind::Setting, "x", "open", Place::default());
        let text = DoctorReport::new(vec![finding], 1).to_text();
        assert!(text.ends_with("\n0 errors, 1 warning, 0 notes; 1 agent examined"), "{text}");
        let report = DoctorReport { inactive_agents: 3, ..DoctorReport::new(Vec::new(), 0) };
        assert!(report.to_text().ends_with("; 0 agents examined, 3 inactive"), "{}", report.to_text());
    }
}
