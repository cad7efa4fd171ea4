//! Query parameters: strict decoding, bounds, and access by name. Unknown parameters are ignored (R103).

use crate::{
    fault::{Code, Fault, Result},
    unit::json::cut,
};
use std::{fmt::Write, ops::RangeInclusive};

/// Maximum size of a query in bytes.
const LONGEST: usize = 8 << 10;
/// Maximum number of parameters in a query.
const MOST: usize = 64;
/// Maximum number of values in a list.
pub(super) const MOST_VALUES: usize = 64;
/// Maximum number of characters of a value in a list.
pub(super) const LONGEST_VALUE: usize = 200;

/// Parameters of a query, in order.
#[derive(Debug, Default)]
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    /// Parses a query without its question mark.
    ///
    /// # Errors
    /// `InvalidInput` that names the invalid parameter.
    pub(super) fn read(query: Option<&str>) -> Result<Self> {
        let query = query.unwrap_or_default();
        if query.len() > LONGEST {
            let why = format!("The query is too long (at most {LONGEST} bytes; POST /agents/search accepts more)");
            return Err(Fault::new(Code::InvalidInput, why).status(414));
        }
        let mut params = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            if params.len() == MOST {
                return Err(refuse(format!("The query has more than {MOST} parameters")));
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let broken = || refuse(format!("The parameter '{}' is not percent-encoded UTF-8", cut(name, 60)));
            params.push((decode(name).ok_or_else(broken)?, decode(value).ok_or_else(broken)?));
        }
        Ok(Self(params))
    }

    /// Whether one of these parameters is present.
    pub(super) fn names(&self, names: &[&str]) -> bool {
        self.0.iter().any(|(name, _)| names.contains(&name.as_str()))
    }

    /// Returns the value of a parameter with any of `names`; `None` if it is absent or empty.
    ///
    /// # Errors
    /// `InvalidInput` if it appears twice: two readers could use different values.
    pub(super) fn one(&self, names: &[&str]) -> Result<Option<&str>> {
        let mut values = self.0.iter().filter(|(name, _)| names.contains(&name.as_str()));
        match (values.next(), values.next()) {
            (Some((name, _)), Some(_)) => Err(refuse(format!("The parameter '{name}' appears twice"))),
            (first, _) => Ok(first.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())),
        }
    }

    /// Returns all values of a parameter with any of `names`, which may be repeated or a comma-separated list.
    ///
    /// # Errors
    /// `InvalidInput` if there are too many values, or one is too long.
    pub(super) fn list(&self, names: &[&str]) -> Result<Vec<String>> {
        let mut list = Vec::new();
        for (name, value) in self.0.iter().filter(|(name, _)| names.contains(&name.as_str())) {
            for value in value.split(',').map(str::trim).filter(|value| !value.is_empty()) {
                if list.len() == MOST_VALUES || value.chars().count() > LONGEST_VALUE {
                    return Err(refuse(format!(
                        "The parameter '{name}' is too long (at most {MOST_VALUES} values of {LONGEST_VALUE} characters)"
                    )));
                }
                list.push(value.to_owned());
            }
        }
        Ok(list)
    }

    /// Returns a whole number within `bounds`.
    ///
    /// # Errors
    /// `InvalidInput` that states the bounds.
    pub(super) fn number(&self, names: &[&str], bounds: RangeInclusive<usize>) -> Result<Option<usize>> {
        let Some(text) = self.one(names)? else { return Ok(None) };
        let plain = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse().ok().filter(|number| plain && bounds.contains(number));
        let name = names.first().copied().unwrap_or_default();
        let why = || {
            refuse(format!("The parameter {name} must be a whole number from {} to {}", bounds.start(), bounds.end()))
        };
        number.map(Some).ok_or_else(why)
    }

    /// Returns the query for another page.
    fn for_page(&self, page: usize) -> String {
        let mut query = String::new();
        for (name, value) in self.0.iter().filter(|(name, _)| name != "page") {
            encode(name, &mut query);
            query.push('=');
            encode(value, &mut query);
            query.push('&');
        }
        let _ = write!(query, "page={page}");
        query
    }
}

/// The requested page of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    page: usize,
    /// Number of entries on a page.
    pub(super) per_page: usize,
}

impl Pages {
    /// Parses `page` (from 1) and `per_page`.
    ///
    /// # Errors
    /// `InvalidInput` if one is not a whole number within its bounds.
    pub(super) fn read(params: &Params, usual: usize, most: usize) -> Result<Self> {
        let page = params.number(&["page"], 1..=1_000_000)?.unwrap_or(1);
        let per_page = params.number(&["per_page"], 1..=most)?.unwrap_or(usual);
        Ok(Self { page, per_page })
    }

    /// Returns the number of entries before this page.
    pub(super) fn skip(&self) -> usize {
        self.page.saturating_sub(1).saturating_mul(self.per_page)
    }

    /// Builds the `Link` to the next page (RFC 8288); `url` is the list's URL without a query.
    pub(super) fn next(&self, url: &str, params: &Params) -> String {
        format!("<{url}?{}>; rel=\"next\"", params.for_page(self.page + 1))
    }
}

/// Decodes percent-encoding, with `+` as a space; `None` for an invalid escape or invalid UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16).and_then(|d| u8::try_from(d).ok());
                digit(rest.next())? << 4 | digit(rest.next())?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn encode(text: &str, to: &mut String) {
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => to.push(char::from(byte)),
            false => {
                let _ = write!(to, "%{byte:02X}");
            }
        }
    }
}

fn refuse(why: String) -> Fault {
    Fault::new(Code::InvalidInput, why)
}
