//! `agent://` names (R46–R52): strict parsing, so that no two parsers resolve one name to two agents, and lossless
//! formatting. Resolution is not part of this module.
//!
//! Deliberately stricter than the grammar: no userinfo, no dot segments, no hosts that some parsers read as numbers.
//! Wider where the draft's examples are: DIDs as authority (R48), no host for sockets, Matrix addresses.

mod authority;
mod percent_encoding;
mod query;

pub use authority::AgentUriAuthority;
pub use query::decode_segment;

use percent_encoding::{UriPart, validate_chars};
use std::{fmt, str::FromStr};

/// Maximum length of a name in bytes.
pub const MAX_URI_LEN: usize = 8_192;
/// Maximum length in bytes of the word after `agent+`.
const MAX_TRANSPORT_LEN: usize = 32;
/// Maximum number of path segments.
const MAX_PATH_SEGMENTS: usize = 64;

/// The `agent://` name of an agent. Equal names have equal texts, except for the case of scheme, transport and host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AgentUri {
    transport: Option<Box<str>>,
    authority: AgentUriAuthority,
    path: Box<str>,
    query: Option<Box<str>>,
    fragment: Option<Box<str>>,
}

/// Why a text is not a valid name, and at which byte parsing stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UriParseError {
    /// The offset of the offending byte, from 0.
    pub offset: usize,
    /// What is wrong there, and what is required.
    pub reason: &'static str,
}

impl fmt::Display for UriParseError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "at character {}: {}", self.offset + 1, self.reason)
    }
}

impl std::error::Error for UriParseError {}

impl AgentUri {
    /// Parses a name.
    ///
    /// # Errors
    /// The first problem and its position.
    pub fn parse(text: &str) -> Result<Self, UriParseError> {
        let wrong = |at, why| UriParseError { offset: at, reason: why };
        if text.len() > MAX_URI_LEN {
            return Err(wrong(MAX_URI_LEN, "the name is too long (at most 8192 bytes)"));
        }
        if let Some(at) = text.bytes().position(|byte| !byte.is_ascii_graphic()) {
            return Err(wrong(at, "a name must be printable ASCII without spaces (percent-encode other characters)"));
        }
        let end = text.find("://").ok_or_else(|| wrong(0, "the name must begin with agent:// or agent+…://"))?;
        let protocol = protocol(text.get(..end).unwrap_or_default())?;
        let start = end + 3;
        let rest = text.get(start..).unwrap_or_default();
        let (before, fragment) = split_at_char(rest, '#');
        let (hierarchy, query) = split_at_char(before, '?');
        let length = hierarchy.find('/').unwrap_or(hierarchy.len());
        let (authority, path) = hierarchy.split_at(length);
        let authority =
            AgentUriAuthority::parse(authority, protocol.as_deref()).map_err(|found| found.shifted_by(start))?;
        validate_path(path).map_err(|found| found.shifted_by(start + length))?;
        let after = |found: UriParseError, at: usize| found.shifted_by(start + at + 1);
        if let Some(query) = query {
            validate_chars(query, UriPart::Query).map_err(|found| after(found, hierarchy.len()))?;
        }
        if let Some(fragment) = fragment {
            validate_chars(fragment, UriPart::Query).map_err(|found| after(found, before.len()))?;
        }
        let owned = |part: Option<&str>| part.map(Box::from);
        Ok(Self { transport: protocol, authority, path: path.into(), query: owned(query), fragment: owned(fragment) })
    }

    /// Returns the transport that the name requests, in lower case; `None` leaves the choice to resolution (R52).
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

    /// Returns the fragment without its number sign (R50).
    pub fn fragment(&self) -> Option<&str> {
        self.fragment.as_deref()
    }

    /// Returns the name without query and fragment, which identifies the agent without input.
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

impl UriParseError {
    fn shifted_by(mut self, bytes: usize) -> Self {
        self.offset += bytes;
        self
    }
}

impl FromStr for AgentUri {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text).map_err(|why| format!("is not an agent:// name ({why})"))
    }
}

impl fmt::Display for AgentUri {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("agent")?;
        if let Some(protocol) = &self.transport {
            write!(to, "+{protocol}")?;
        }
        write!(to, "://{}{}", self.authority, self.path)?;
        if let Some(query) = &self.query {
            write!(to, "?{query}")?;
        }
        self.fragment.as_ref().map_or(Ok(()), |fragment| write!(to, "#{fragment}"))
    }
}

fn split_at_char(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, after)| (before, Some(after)))
}

/// Parses `agent`, or `agent+` and `1*(ALPHA / DIGIT / "-")`; schemes are case-insensitive (RFC 3986 §3.1).
fn protocol(scheme: &str) -> Result<Option<Box<str>>, UriParseError> {
    let wrong = |at, why| UriParseError { offset: at, reason: why };
    let (agent, protocol) = split_at_char(scheme, '+');
    if !agent.eq_ignore_ascii_case("agent") {
        return Err(wrong(0, "the name must begin with agent:// or agent+…://"));
    }
    let Some(protocol) = protocol else { return Ok(None) };
    let at = agent.len() + 1;
    if !(1..=MAX_TRANSPORT_LEN).contains(&protocol.len()) {
        return Err(wrong(at, "the transport after agent+ must have 1 to 32 letters, digits and hyphens"));
    }
    match protocol.bytes().position(|byte| !byte.is_ascii_alphanumeric() && byte != b'-') {
        Some(within) => Err(wrong(at + within, "the transport after agent+ must be letters, digits and hyphens")),
        None => Ok(Some(protocol.to_ascii_lowercase().into())),
    }
}

/// R50: the path is opaque, but must not contain anything that two parsers could split differently.
fn validate_path(path: &str) -> Result<(), UriParseError> {
    validate_chars(path, UriPart::Path)?;
    let mut at = 0;
    for (number, segment) in path.split('/').enumerate() {
        let wrong = |why| Err(UriParseError { offset: at, reason: why });
        let last = at + segment.len() == path.len();
        match percent_encoding::is_dot_segment(segment) {
            true => return wrong("the path has a dot segment ('.' or '..')"),
            false if number > MAX_PATH_SEGMENTS => return wrong("the path has more than 64 segments"),
            false if segment.is_empty() && number > 0 && !last => return wrong("the path has an empty segment ('//')"),
            false => at += segment.len() + 1,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
