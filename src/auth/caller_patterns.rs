//! Patterns for callers' ids: the problems of those that match no caller, or callers that the operator did not mean.

use super::config::CertificateName;
use crate::{
    agent::{AuthenticationMethod, BROWSER_ID_PREFIX},
    values::Glob,
};

/// Id of callers without a credential. Every other id contains a colon.
pub const ANONYMOUS: &str = "anonymous";

/// Returns the problem with a caller pattern that no id can match, most likely because the prefix of the method is
/// missing, or with a pattern for certificates that does not name the kind of the name.
pub fn caller_pattern_problem(caller: &Glob) -> Option<String> {
    let text = caller.as_str();
    let prefixes = AuthenticationMethod::ALL.map(AuthenticationMethod::caller_id_prefix);
    let prefixes = || prefixes.into_iter().filter(|prefix| !prefix.is_empty());
    let has_prefix = prefixes().chain([BROWSER_ID_PREFIX]).any(|prefix| text.starts_with(prefix));
    if has_prefix || text == ANONYMOUS || text.contains('*') {
        return certificate_pattern_problem(caller);
    }
    let examples: Vec<String> = prefixes().map(|prefix| format!("{prefix}{text}")).collect();
    let (last, others) = examples.split_last()?;
    Some(format!("'{text}' matches no caller (write the kind: {} or {last})", others.join(", ")))
}

/// Returns the problem with a pattern that begins with `cert:` and does not name the kind of the certificate's name. Such
/// a pattern matches no name, or, with a wildcard, names of several kinds: `cert:*.example` would match common names
/// as well as DNS names.
pub fn certificate_pattern_problem(caller: &Glob) -> Option<String> {
    let text = caller.as_str();
    let name = text.strip_prefix(AuthenticationMethod::Mtls.caller_id_prefix())?;
    if name == "*" || CertificateName::is_qualified(name) {
        return None;
    }
    let examples = certificate_name_examples(name);
    Some(format!("'{text}' does not name the kind of the certificate's name (after cert:, write {examples})"))
}

/// Returns examples of `name` with the kind of a certificate's name.
pub(super) fn certificate_name_examples(name: &str) -> String {
    let qualify = |kind: CertificateName| kind.qualify(name);
    let [dns, cn] = [CertificateName::SanDns, CertificateName::SubjectCn].map(qualify);
    format!("{dns}, {cn}, or another of {}", CertificateName::QUALIFIERS.join(" "))
}
