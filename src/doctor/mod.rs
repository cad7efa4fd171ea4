//! Doctor: looks for mistakes in a configuration, its files, the services that it names, and every agent. Each analyzer
//! returns findings with codes of one table, and with the line to change. The analyzers that need no other machine run
//! in `gatepost check` too.

mod access_analyzer;
mod access_rules;
mod agent_analyzer;
mod agent_name_analyzer;
mod caller_analyzer;
mod card_drift;
mod certificate_analyzer;
mod config_warnings;
mod document_analyzer;
mod document_files;
mod document_places;
mod examination;
mod examined_config;
mod finding;
mod finding_codes;
mod plain_words;
mod probe_runner;
mod problem_codes;
mod report;
mod service_analyzer;
mod source_analyzer;
mod store_analyzer;
mod token_analyzer;

pub use agent_analyzer::AgentSelection;
pub use config_warnings::{ConfigWarning, locate_config_warnings, log_config_warnings};
pub use document_analyzer::code_of_rejection;
pub use document_files::DocumentFiles;
pub use examination::{
    CheckFindings, LiveExamination, agent_document_findings, check_findings, examine_services_and_agents,
    setting_findings,
};
pub use examined_config::ExaminedConfig;
pub use finding::{Finding, Place, SubjectKind};
pub use finding_codes::{FindingCode, FindingRow, Severity};
pub use problem_codes::{code_of_problem, unloaded_findings};
pub use report::{DoctorReport, list_codes};
pub use store_analyzer::{StoreExamination, examine_stores};
pub use token_analyzer::refused_token_finding;
