//! The codes of problems with which the gateway does not start. The modules find them, each in its own section; their
//! path and text say which kind of problem it is.

use super::{
    examined_config::ExaminedConfig,
    finding::{Finding, Place, SubjectKind},
    finding_codes::FindingCode,
};
use crate::config::{ConfigProblem, ConfigProblems};
use std::path::Path;

/// Returns the code of a problem.
pub fn code_of_problem(problem: &ConfigProblem) -> FindingCode {
    let (path, message) = (problem.path.as_str(), problem.message.as_str());
    let name = path.rsplit('.').next().unwrap_or_default();
    let says = |words: &str| message.contains(words);
    let is_in_tls = path.contains("tls");
    match name {
        "" => FindingCode::FileInvalid,
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
        _ if says("cannot be read") || says("cannot be created") => FindingCode::FileUnusable,
        _ => FindingCode::SettingInvalid,
    }
}

fn subject_of(code: FindingCode) -> SubjectKind {
    match code {
        FindingCode::ListenerWithoutTls => SubjectKind::Listener,
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
    unloaded_findings(&examined.loaded.locate_problems(problems), examined.file)
}

fn problem_finding(problem: &ConfigProblem, file: &Path) -> Finding {
    let code = code_of_problem(problem);
    let place = Place { file: file.display().to_string(), line: problem.line, path: problem.path.clone() };
    let name = if problem.path.is_empty() { place.file.clone() } else { problem.path.clone() };
    Finding::new(code, subject_of(code), name, &problem.message, place)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ];
        for (path, message, code) in cases {
            let problem = ConfigProblem { path: path.to_owned(), line: Some(1), message: message.to_owned() };
            assert_eq!(code_of_problem(&problem), code, "{path}: {message}");
        }
    }
}
