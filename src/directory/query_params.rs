//! Query parameters: strict decoding, bounds, and access by name. Unknown parameters are ignored (R103).

use crate::{
    fault::{Fault, FaultCode, Result},
    values::{form_decode, json::truncate, percent_encode},
};
use std::{fmt::Write, ops::RangeInclusive};

/// Maximum size of a query in bytes.
const MAX_QUERY_BYTES: usize = 8 << 10;
/// Maximum number of parameters in a query.
const MAX_PARAMS: usize = 4 * MAX_LIST_VALUES + 16;
/// Maximum number of a page.
pub(super) const MAX_PAGE: usize = 1_000_000;
/// Maximum number of entries before a page.
pub(super) const MAX_OFFSET: usize = 1_000_000_000;
/// Maximum number of values in a list.
pub(super) const MAX_LIST_VALUES: usize = 64;
/// Maximum number of characters of a value in a list.
pub(super) const MAX_VALUE_CHARS: usize = 200;

/// Parameters of a query, in order.
#[derive(Debug, Default)]
pub(super) struct QueryParams(Vec<(String, String)>);

impl QueryParams {
    /// Parses a query without its question mark.
    ///
    /// # Errors
    /// `InvalidInput` that names the invalid parameter.
    pub(super) fn parse(query: Option<&str>) -> Result<Self> {
        let query = query.unwrap_or_default();
        if query.len() > MAX_QUERY_BYTES {
            let why =
                format!("The query is too long (at most {MAX_QUERY_BYTES} bytes; POST /agents/search accepts more)");
            return Err(Fault::new(FaultCode::InvalidInput, why).with_status(414));
        }
        let mut params = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            if params.len() == MAX_PARAMS {
                return Err(invalid_input(format!("The query has more than {MAX_PARAMS} parameters")));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let invalid_encoding =
                || invalid_input(format!("The parameter '{}' is not percent-encoded UTF-8", truncate(name, 60)));
            params.push((
                form_decode(name).ok_or_else(invalid_encoding)?,
                form_decode(value).ok_or_else(invalid_encoding)?,
            ));
        }
        Ok(Self(params))
    }

    /// Returns whether one of these parameters is present.
    pub(super) fn has_any(&self, names: &[&str]) -> bool {
        self.0.iter().any(|(name, _)| names.contains(&name.as_str()))
    }

    /// Returns the value of a parameter with any of `names`; `None` if it is absent or empty.
    ///
    /// # Errors
    /// `InvalidInput` if it appears twice: two readers could use different values.
    pub(super) fn single(&self, names: &[&str]) -> Result<Option<&str>> {
        let mut values = self.0.iter().filter(|(name, _)| names.contains(&name.as_str()));
        match (values.next(), values.next()) {
            (Some((name, _)), Some(_)) => Err(invalid_input(format!("The parameter '{name}' appears twice"))),
            (first, _) => Ok(first.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())),
        }
    }

    /// Returns all values of a parameter with any of `names`, which may be repeated or a comma-separated list; empty ones
    /// count and are left out.
    ///
    /// # Errors
    /// `InvalidInput` if there are too many values, or one is too long.
    pub(super) fn list(&self, names: &[&str]) -> Result<Vec<String>> {
        let (mut list, mut count) = (Vec::new(), 0);
        for (name, value) in self.0.iter().filter(|(name, _)| names.contains(&name.as_str())) {
            for value in value.split(',').map(str::trim) {
                count += 1;
                if count > MAX_LIST_VALUES || value.chars().count() > MAX_VALUE_CHARS {
                    return Err(invalid_input(format!(
                        "The parameter '{name}' is too long (at most {MAX_LIST_VALUES} values of {MAX_VALUE_CHARS} \
                         characters)"
                    )));
                }
                if !value.is_empty() {
                    list.push(value.to_owned());
                }
            }
        }
        Ok(list)
    }

    /// Returns a whole number within `bounds`.
    ///
    /// # Errors
    /// `InvalidInput` that states the bounds.
    pub(super) fn number(&self, names: &[&str], bounds: RangeInclusive<usize>) -> Result<Option<usize>> {
        let Some(text) = self.single(names)? else { return Ok(None) };
        let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| is_digits && bounds.contains(number));
        let name = names.first().copied().unwrap_or_default();
        let out_of_bounds = || {
            invalid_input(format!(
                "The parameter {name} must be a whole number from {} to {}",
                bounds.start(),
                bounds.end()
            ))
        };
        number.map(Some).ok_or_else(out_of_bounds)
    }

    /// Returns the query with other values of some parameters: those of `replaced` are removed, and `added` is appended.
    fn query_with(&self, replaced: &[&str], added: &str) -> String {
        let mut query = String::new();
        for (name, value) in self.0.iter().filter(|(name, _)| !replaced.contains(&name.as_str())) {
            let _ = write!(query, "{}={}&", percent_encode(name), percent_encode(value));
        }
        query + added
    }
}

/// The requested page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pagination {
    page: usize,
    /// Number of entries before the first page: a page that ends early has a next one that begins where it ended.
    skipped: usize,
    /// Maximum number of entries on a page.
    pub(super) per_page: usize,
}

impl Pagination {
    /// Parses `page` (from 1), `per_page`, and `offset`, the number of entries before the first page.
    ///
    /// # Errors
    /// `InvalidInput` if one is not a whole number within its bounds.
    pub(super) fn from_params(params: &QueryParams, default_per_page: usize, max_per_page: usize) -> Result<Self> {
        let page = params.number(&["page"], 1..=MAX_PAGE)?.unwrap_or(1);
        let skipped = params.number(&["offset"], 0..=MAX_OFFSET)?.unwrap_or_default();
        let per_page = params.number(&["per_page"], 1..=max_per_page)?.unwrap_or(default_per_page);
        Ok(Self { page, skipped, per_page })
    }

    /// Returns the number of entries before this page.
    pub(super) fn offset(&self) -> usize {
        self.page.saturating_sub(1).saturating_mul(self.per_page).saturating_add(self.skipped)
    }

    /// Builds the `Link` to what follows this page (RFC 8288): the next page if there is one, or what is left of this page,
    /// which ended early after `cut` entries if it did. `url` is the list's URL without a query.
    pub(super) fn next_link(
        &self,
        url: &str,
        params: &QueryParams,
        cut: Option<usize>,
        has_next_page: bool,
    ) -> Option<String> {
        let query = match cut {
            None if !has_next_page => return None,
            None => params.query_with(&["page"], &format!("page={}", self.page + 1)),
            Some(count) => {
                let mut start = format!("offset={}", self.offset().saturating_add(count));
                if params.has_any(&["top", "limit"]) {
                    let _ = write!(start, "&top={}", self.per_page.saturating_sub(count));
                }
                params.query_with(&["page", "offset", "top", "limit"], &start)
            }
        };
        Some(format!("<{url}?{query}>; rel=\"next\""))
    }
}

fn invalid_input(why: String) -> Fault {
    Fault::new(FaultCode::InvalidInput, why)
}
