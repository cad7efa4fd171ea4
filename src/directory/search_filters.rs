//! Search filters in queries and bodies, in all their spellings: plural, singular, one value or several (R21, R22).

use super::{
    query_params::QueryParams,
    request_body::{BodyMembers, Violations},
};
use crate::{
    fault::{Fault, FaultCode, Result},
    search::{SearchFilters, StatusFilter},
};

/// Names of each filter, the canonical one first.
pub(super) const CAPABILITY_NAMES: &[&str] = &["capabilities", "capability"];
pub(super) const TAG_NAMES: &[&str] = &["tags", "tag"];
pub(super) const LANGUAGE_NAMES: &[&str] = &["supported_languages", "supported_language", "languages", "language"];
pub(super) const STATUS_NAMES: &[&str] = &["status", "statuses"];

const STATUS_RULE: &str = "must be active, inactive, deprecated or all";

/// Parses the filters of a query.
///
/// # Errors
/// `InvalidInput` that names the parameter.
pub(super) fn filters_from_query(params: &QueryParams) -> Result<SearchFilters> {
    let mut status = Vec::new();
    for text in params.list(STATUS_NAMES)? {
        status.extend(
            parse_status(&text)
                .ok_or_else(|| Fault::new(FaultCode::InvalidInput, format!("The status {STATUS_RULE}")))?,
        );
    }
    Ok(SearchFilters {
        capabilities: params.list(CAPABILITY_NAMES)?,
        tags: params.list(TAG_NAMES)?,
        languages: params.list(LANGUAGE_NAMES)?,
        status,
    })
}

/// Parses the filters in an object of a body.
pub(super) fn filters_from_body(members: &BodyMembers<'_>, violations: &mut Violations) -> SearchFilters {
    let mut status = Vec::new();
    for text in members.strings(STATUS_NAMES, violations) {
        match parse_status(&text) {
            Some(statuses) => status.extend(statuses),
            None => violations.add(members.member_pointer("status"), STATUS_RULE),
        }
    }
    SearchFilters {
        capabilities: members.strings(CAPABILITY_NAMES, violations),
        tags: members.strings(TAG_NAMES, violations),
        languages: members.strings(LANGUAGE_NAMES, violations),
        status,
    }
}

fn parse_status(text: &str) -> Option<&'static [StatusFilter]> {
    Some(match text.to_ascii_lowercase().as_str() {
        "active" | "available" => &[StatusFilter::Active],
        "inactive" | "unavailable" => &[StatusFilter::Inactive],
        "deprecated" => &[StatusFilter::Deprecated],
        "all" | "any" => &[StatusFilter::Active, StatusFilter::Inactive, StatusFilter::Deprecated],
        _ => return None,
    })
}
