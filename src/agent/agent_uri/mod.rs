//! `agent://` names (R46–R52): a strict parser, so that no two parsers resolve one name to two agents, and lossless
//! formatting.
//!
//! Stricter than the grammar: no userinfo, no dot segments, no hosts that some parsers read as numbers. Wider than the
//! grammar, as the examples of the draft: DIDs as authority (R48), no host for sockets, Matrix addresses.

mod allowed_characters;
mod authority;
mod query;
mod uri_parse_error;
mod uri_template;

pub use authority::AgentUriAuthority;
pub use uri_parse_error::UriParseError;
pub use uri_template::query_expression;

use allowed_characters::{UriPart, validate_chars};
use serde_json::{Map, Value};
use std::{fmt, str::FromStr};

/// Maximum length of a name in bytes.
pub const MAX_URI_LEN: usize = 8_192;
/// A template is for people and programs that fill it in; a call needs the name that results (R157).
const TEMPLATE_REFUSED: &str =
    "the name is a URI template (RFC 6570): replace the expression in braces by its value before the call";
/// Maximum length in bytes of the transport after `agent+`.
const MAX_TRANSPORT_LEN: usize = 32;
/// Maximum number of path segments.
const MAX_PATH_SEGMENTS: usize = 64;

/// The `agent://` name of an agent. Names are equal if their texts are equal, except for the case of scheme, transport
/// and host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AgentUri {
    transport: Option<Box<str>>,
    authority: AgentUriAuthority,
    path: Box<str>,
    query: Option<Box<str>>,
    fragment: Option<Box<str>>,
}

impl AgentUri {
    /// Parses a name.
    ///
    /// # Errors
    /// The first problem and its position.
    pub fn parse(text: &str) -> Result<Self, UriParseError> {
        let error = |offset, why| UriParseError { offset, reason: why };
        if text.len() > MAX_URI_LEN {
            return Err(error(MAX_URI_LEN, "the name is too long (at most 8192 bytes)"));
        }
        if let Some(offset) = text.bytes().position(|byte| !byte.is_ascii_graphic()) {
            return Err(error(
                offset,
                "a name must be printable ASCII without spaces (percent-encode other characters)",
            ));
        }
        if let Some(offset) = uri_template::find_expression(text) {
            return Err(error(offset, TEMPLATE_REFUSED));
        }
        let scheme_end = text.find("://").ok_or_else(|| error(0, "the name must begin with agent:// or agent+…://"))?;
        let transport = parse_transport(text.get(..scheme_end).unwrap_or_default())?;
        let authority_start = scheme_end + 3;
        let after_scheme = text.get(authority_start..).unwrap_or_default();
        let (without_fragment, fragment) = split_at_char(after_scheme, '#');
        let (hierarchy, query) = split_at_char(without_fragment, '?');
        let authority_len = hierarchy.find('/').unwrap_or(hierarchy.len());
        let (authority, path) = hierarchy.split_at(authority_len);
        let authority =
            AgentUriAuthority::parse(authority, transport.as_deref()).map_err(|why| why.shifted_by(authority_start))?;
        validate_path(path).map_err(|why| why.shifted_by(authority_start + authority_len))?;
        let shift_after = |why: UriParseError, offset: usize| why.shifted_by(authority_start + offset + 1);
        if let Some(query) = query {
            validate_chars(query, UriPart::Query).map_err(|why| shift_after(why, hierarchy.len()))?;
        }
        if let Some(fragment) = fragment {
            validate_chars(fragment, UriPart::Query).map_err(|why| shift_after(why, without_fragment.len()))?;
        }
        let to_owned_part = |part: Option<&str>| part.map(Box::from);
        Ok(Self {
            transport,
            authority,
            path: path.into(),
            query: to_owned_part(query),
            fragment: to_owned_part(fragment),
        })
    }

    /// Returns the transport that the name requests, in lower case; `None` leaves the choice to the resolver (R52).
    pub fn transport(&self) -> Option<&str> {
        self.transport.as_deref()
    }

    /// Returns the authority.
    pub fn authority(&self) -> &AgentUriAuthority {
        &self.authority
    }

    /// Returns the path as written: empty, or with its leading slash.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Iterates over the path's segments; a trailing slash adds none.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.path.split('/').skip(1).filter(|segment| !segment.is_empty())
    }

    /// Returns the query without its question mark.
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// Returns the query as an object of strings; a repeated parameter becomes an array of its values, in order.
    ///
    /// # Errors
    /// The decoded query is not UTF-8, a parameter has no name, or there are more than 256.
    pub fn query_input(&self) -> Result<Map<String, Value>, &'static str> {
        query::query_to_input(self.query().unwrap_or_default())
    }

    /// Returns the first value of the query parameter `name`.
    pub fn query_parameter(&self, name: &str) -> Option<String> {
        query::find_parameter(self.query()?, name)
    }

    /// Returns the fragment without its number sign (R50).
    pub fn fragment(&self) -> Option<&str> {
        self.fragment.as_deref()
    }

    /// Returns the name without query and fragment, which is the agent without input.
    #[must_use]
    pub fn without_query_and_fragment(&self) -> Self {
        Self { query: None, fragment: None, ..self.clone() }
    }

    /// Returns the path and query.
    pub fn path_and_query(&self) -> String {
        let query = self.query.as_deref().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{}{query}", self.path)
    }
}

impl FromStr for AgentUri {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text).map_err(|why| format!("is not an agent:// name ({why})"))
    }
}

impl fmt::Display for AgentUri {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("agent")?;
        if let Some(transport) = &self.transport {
            write!(formatter, "+{transport}")?;
        }
        write!(formatter, "://{}{}", self.authority, self.path)?;
        if let Some(query) = &self.query {
            write!(formatter, "?{query}")?;
        }
        self.fragment.as_ref().map_or(Ok(()), |fragment| write!(formatter, "#{fragment}"))
    }
}

fn split_at_char(text: &str, separator: char) -> (&str, Option<&str>) {
    text.split_once(separator).map_or((text, None), |(before, after)| (before, Some(after)))
}

/// Parses `agent`, or `agent+` and `1*(ALPHA / DIGIT / "-")`; schemes are case-insensitive (RFC 3986 §3.1).
fn parse_transport(scheme: &str) -> Result<Option<Box<str>>, UriParseError> {
    let error = |offset, why| UriParseError { offset, reason: why };
    let (agent, transport) = split_at_char(scheme, '+');
    if !agent.eq_ignore_ascii_case("agent") {
        return Err(error(0, "the name must begin with agent:// or agent+…://"));
    }
    let Some(transport) = transport else { return Ok(None) };
    let offset = agent.len() + 1;
    if !(1..=MAX_TRANSPORT_LEN).contains(&transport.len()) {
        return Err(error(offset, "the transport after agent+ must have 1 to 32 letters, digits and hyphens"));
    }
    match transport.bytes().position(|byte| !byte.is_ascii_alphanumeric() && byte != b'-') {
        Some(index) => Err(error(offset + index, "the transport after agent+ must be letters, digits and hyphens")),
        None => Ok(Some(transport.to_ascii_lowercase().into())),
    }
}

/// Validates the path, which is opaque (R50) but must not be one that two parsers could split differently.
fn validate_path(path: &str) -> Result<(), UriParseError> {
    validate_chars(path, UriPart::Path)?;
    let mut offset = 0;
    for (index, segment) in path.split('/').enumerate() {
        let error = |why| Err(UriParseError { offset, reason: why });
        let is_last = offset + segment.len() == path.len();
        if allowed_characters::is_dot_segment(segment) {
            return error("the path has a dot segment ('.' or '..')");
        }
        if index > MAX_PATH_SEGMENTS {
            return error("the path has more than 64 segments");
        }
        if segment.is_empty() && index > 0 && !is_last {
            return error("the path has an empty segment ('//')");
        }
        offset += segment.len() + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
