//! Search filters in queries and bodies, in all their spellings: plural, singular, one value or several (R21, R22).

use super::{
    body::{Members, Wrong},
    query::Params,
};
use crate::{
    fault::{Code, Fault, Result},
    search::{Filters, Word},
};

/// Names of each filter, the canonical one first.
pub(super) const CAPABILITIES: &[&str] = &["capabilities", "capability"];
pub(super) const TAGS: &[&str] = &["tags", "tag"];
pub(super) const LANGUAGES: &[&str] = &["supported_languages", "supported_language", "languages", "language"];
pub(super) const STATUS: &[&str] = &["status", "statuses"];

const WORDS: &str = "must be active, inactive, deprecated or all";

/// Parses the filters of a query.
///
/// # Errors
/// `InvalidInput` that names the parameter.
pub(super) fn of_query(params: &Params) -> Result<Filters> {
    let mut status = Vec::new();
    for text in params.list(STATUS)? {
        status.extend(words(&text).ok_or_else(|| Fault::new(Code::InvalidInput, format!("The status {WORDS}")))?);
    }
    Ok(Filters {
        capabilities: params.list(CAPABILITIES)?,
        tags: params.list(TAGS)?,
        languages: params.list(LANGUAGES)?,
        status,
    })
}

/// Parses the filters in an object of a body.
pub(super) fn of_members(members: &Members<'_>, violations: &mut Wrong) -> Filters {
    let mut status = Vec::new();
    for text in members.words(STATUS, violations) {
        match words(&text) {
            Some(words) => status.extend(words),
            None => violations.say(members.pointer("status"), WORDS),
        }
    }
    Filters {
        capabilities: members.words(CAPABILITIES, violations),
        tags: members.words(TAGS, violations),
        languages: members.words(LANGUAGES, violations),
        status,
    }
}

fn words(text: &str) -> Option<&'static [Word]> {
    Some(match text.to_ascii_lowercase().as_str() {
        "active" | "available" => &[Word::Active],
        "inactive" | "unavailable" => &[Word::Inactive],
        "deprecated" => &[Word::Deprecated],
        "all" | "any" => &[Word::Active, Word::Inactive, Word::Deprecated],
        _ => return None,
    })
}
