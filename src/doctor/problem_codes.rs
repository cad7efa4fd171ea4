//! The codes of problems with which the gateway does not start. The modules find them, each in its own section; their
//! path and text say which kind of problem it is.

use super::{
    examined_config::ExaminedConfig,
    finding::{Finding, Place, SubjectKind},
    finding_codes::FindingCode,
};
use crate::config::{ConfigProblem, ConfigProblems};
use std::path::Path;

/// What a problem says before the path of the listener whose address another one has.
const SHARED_ADDRESS: &str = " is the address of ";

/// Returns the code of a problem.
pub fn code_of_problem(problem: &ConfigProblem) -> FindingCode {
    let (path, message) = (problem.path.as_str(), problem.message.as_str());
    let name = path.rsplit('.').next().unwrap_or_default();
    let says = |words: &str| message.contains(words);
    let is_in_tls = path.contains("tls");
    match name {
        "" => FindingCode::FileInvalid,
        "address" if says(SHARED_ADDRESS) => FindingCode::AddressTwice,
        "address" if says("plain HTTP is allowed on loopback") => FindingCode::ListenerWithoutTls,
        _ if says("cannot be used together") || says("does not match tls.certificate") || says("are not a pair") => {
            FindingCode::KeyMismatch
        }
        _ if says("environment variable") && says("is not set") => FindingCode::SecretMissing,
        _ if says("secret file") || says("the secret ") && says("is empty") => FindingCode::SecretMissing,
        "key" if is_in_tls => FindingCode::KeyUnusable,
        "certificate" if is_in_tls => FindingCode::CertificateUnusable,
        "ca" | "client_ca" | "database_ca" | "ca_file" => FindingCode::AuthorityUnusable,
        "sqlite_file" => FindingCode::StoreUnusable,
        _ if name.starts_with("audience") || says("property 'audience' is missing") => FindingCode::AudienceInvalid,
        _ if says("cannot be read") || says("cannot be created") || says("cannot be written") => {
            FindingCode::FileUnusable
        }
        _ => FindingCode::SettingInvalid,
    }
}

fn subject_of(code: FindingCode) -> SubjectKind {
    match code {
        FindingCode::ListenerWithoutTls | FindingCode::AddressTwice => SubjectKind::Listener,
        FindingCode::KeyMismatch
        | FindingCode::KeyUnusable
        | FindingCode::CertificateUnusable
        | FindingCode::AuthorityUnusable => SubjectKind::Certificate,
        FindingCode::StoreUnusable => SubjectKind::Store,
        FindingCode::AudienceInvalid => SubjectKind::Issuer,
        _ => SubjectKind::Setting,
    }
}

/// Returns the problems of a configuration that could not be loaded as findings.
pub fn unloaded_findings(problems: &ConfigProblems, file: &Path) -> Vec<Finding> {
    problems.0.iter().map(|problem| problem_finding(problem, file)).collect()
}

/// Returns the problems of a configuration, each formatted as `path: message`, as findings.
pub(super) fn problem_findings(examined: ExaminedConfig<'_>, problems: Vec<String>) -> Vec<Finding> {
    let mut findings = unloaded_findings(&examined.loaded.locate_problems(problems), examined.file);
    for finding in findings.iter_mut().filter(|finding| finding.code == FindingCode::AddressTwice) {
        let other = finding.problem.split_once(SHARED_ADDRESS).and_then(|(_, rest)| rest.split(',').next());
        finding.related.extend(other.and_then(|path| examined.exact_place(path)));
    }
    findings
}

fn problem_finding(problem: &ConfigProblem, file: &Path) -> Finding {
    let code = code_of_problem(problem);
    let place = Place { file: file.display().to_string(), line: problem.line, path: problem.path.clone() };
    let name = if problem.path.is_empty() { place.file.clone() } else { problem.path.clone() };
    let finding = Finding::new(code, subject_of(code), name, &problem.message, place).with_instruction_of_problem();
    let variable = problem.message.rsplit_once("(set by the environment variable ");
    if let Some((_, variable)) = variable.filter(|_| finding.fix == code.row().fix) {
        let name = variable.trim_end_matches(')');
        return finding.with_fix(format!("correct the name or the value of the environment variable {name}"));
    }
    let is_file =
        matches!(code, FindingCode::AuthorityUnusable | FindingCode::CertificateUnusable | FindingCode::KeyUnusable);
    let cannot_open = ["No such file", "Permission denied", "Not a directory", "Is a directory"];
    if is_file && cannot_open.iter().any(|why| problem.message.contains(why)) {
        return finding.with_fix("correct the path, or let the user that runs the gateway read the file");
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fix_is_the_hint_of_the_problem_and_not_its_cause() {
        let fix_of = |path: &str, message: &str| {
            let problem = ConfigProblem { path: path.to_owned(), line: Some(1), message: message.to_owned() };
            let finding = problem_finding(&problem, Path::new("gatepost.yaml"));
            (finding.problem, finding.fix)
        };
        let (problem, fix) =
            fix_of("limits.per_caller", "'x' is not a rate (write 10/s) (set by the environment variable X)");
        assert_eq!(problem, "'x' is not a rate (set by the environment variable X)");
        assert_eq!(fix, "write 10/s");
        let (problem, fix) = fix_of("audit.file", "x cannot be created (y is not a folder)");
        assert!(problem.ends_with("(y is not a folder)") && fix == "correct the path or the file", "{problem}: {fix}");
        let (_, fix) = fix_of("agents.defaults.tls.ca", "x cannot be read (No such file or directory)");
        assert!(fix.starts_with("correct the path"), "{fix}");
    }

    #[test]
    fn the_path_and_the_text_of_a_problem_decide_its_code() {
        let cases = [
            ("", "this is not YAML", FindingCode::FileInvalid),
            ("limits.per_caler", "unknown field", FindingCode::SettingInvalid),
            ("listeners[0].tls.key", "x.key cannot be read as a private key", FindingCode::KeyUnusable),
            ("listeners[0].tls.certificate", "x.pem has no certificate", FindingCode::CertificateUnusable),
            ("listeners[0].tls", "certificate and key cannot be used together (x)", FindingCode::KeyMismatch),
            ("listeners[0].tls.client_ca", "x cannot be read", FindingCode::AuthorityUnusable),
            (
                "listeners[0].address",
                "plain HTTP is allowed on loopback addresses only",
                FindingCode::ListenerWithoutTls,
            ),
            ("auth.bearer.issuers[0].audience", "is empty", FindingCode::AudienceInvalid),
            ("auth.bearer.issuers[0]", "required property 'audience' is missing", FindingCode::AudienceInvalid),
            ("auth.api_keys.pepper", "environment variable P is not set", FindingCode::SecretMissing),
            ("registry.sqlite_file", "x cannot be used", FindingCode::StoreUnusable),
            ("agents.sources[0]", "x cannot be read (no such file)", FindingCode::FileUnusable),
            ("limits.quota_state_file", "x cannot be written (no such folder)", FindingCode::FileUnusable),
            ("admin.address", "0.0.0.0:1 is the address of listeners[0].address, too", FindingCode::AddressTwice),
        ];
        for (path, message, code) in cases {
            let problem = ConfigProblem { path: path.to_owned(), line: Some(1), message: message.to_owned() };
            assert_eq!(code_of_problem(&problem), code, "{path}: {message}");
        }
    }
}
