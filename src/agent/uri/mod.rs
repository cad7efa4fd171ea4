//! `agent://` names (R46–R52): read strictly, so that no two readers take one name for two agents, and written back as
//! they were read. What a name leads to is not known here.
//!
//! Stricter than the grammar on purpose: no user, no dot segments, no hosts that some readers take for numbers; and
//! wider where the draft's own examples are: DIDs as authority (R48), no host for sockets, Matrix's own addresses.

mod authority;
mod chars;
mod query;

pub use authority::Authority;
pub use query::segment;

use chars::{Part, scan};
use std::{fmt, str::FromStr};

/// Bytes of a name.
pub const LONGEST: usize = 8_192;
/// Bytes of the word after `agent+`.
const LONGEST_PROTOCOL: usize = 32;
/// Segments of a path.
const MOST_SEGMENTS: usize = 64;

/// A name of an agent. Equal names are equal texts, but for the case of scheme, protocol and host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AgentUri {
    protocol: Option<Box<str>>,
    authority: Authority,
    path: Box<str>,
    query: Option<Box<str>>,
    fragment: Option<Box<str>>,
}

/// Why a text is no name, and where reading stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misread {
    /// The byte at which it is wrong, from 0.
    pub at: usize,
    /// What is wrong there, and what would be right.
    pub why: &'static str,
}

impl fmt::Display for Misread {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "at character {}: {}", self.at + 1, self.why)
    }
}

impl std::error::Error for Misread {}

impl AgentUri {
    /// Reads a name.
    ///
    /// # Errors
    /// The first thing that is wrong with it, and where.
    pub fn read(text: &str) -> Result<Self, Misread> {
        let wrong = |at, why| Misread { at, why };
        if text.len() > LONGEST {
            return Err(wrong(LONGEST, "the name is too long (at most 8192 bytes)"));
        }
        if let Some(at) = text.bytes().position(|byte| !byte.is_ascii_graphic()) {
            return Err(wrong(at, "names are printable ASCII without spaces (percent-encode what is not)"));
        }
        let end = text.find("://").ok_or_else(|| wrong(0, "the name does not begin with agent:// or agent+…://"))?;
        let protocol = protocol(text.get(..end).unwrap_or_default())?;
        let start = end + 3;
        let rest = text.get(start..).unwrap_or_default();
        let (before, fragment) = cut(rest, '#');
        let (hierarchy, query) = cut(before, '?');
        let length = hierarchy.find('/').unwrap_or(hierarchy.len());
        let (authority, path) = hierarchy.split_at(length);
        let authority = Authority::read(authority, protocol.as_deref()).map_err(|found| found.after(start))?;
        read_path(path).map_err(|found| found.after(start + length))?;
        let after = |found: Misread, at: usize| found.after(start + at + 1);
        if let Some(query) = query {
            scan(query, Part::Query).map_err(|found| after(found, hierarchy.len()))?;
        }
        if let Some(fragment) = fragment {
            scan(fragment, Part::Query).map_err(|found| after(found, before.len()))?;
        }
        let owned = |part: Option<&str>| part.map(Box::from);
        Ok(Self { protocol, authority, path: path.into(), query: owned(query), fragment: owned(fragment) })
    }

    /// The transport that the name asks for, in lower case; `None` leaves it to resolution (R52).
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// Who answers for the name.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The path, empty or with its slash, as it was written.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The path's segments, without a slash at the end.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.path.split('/').skip(1).filter(|segment| !segment.is_empty())
    }

    /// The query, without its question mark.
    pub fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    /// The fragment, without its number sign (R50).
    pub fn fragment(&self) -> Option<&str> {
        self.fragment.as_deref()
    }

    /// The name without query and fragment: what it is about, without what is said to it.
    #[must_use]
    pub fn bare(&self) -> Self {
        Self { query: None, fragment: None, ..self.clone() }
    }

    /// What stands behind the authority: path and query.
    pub fn tail(&self) -> String {
        let query = self.query.as_deref().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{}{query}", self.path)
    }
}

impl Misread {
    fn after(mut self, bytes: usize) -> Self {
        self.at += bytes;
        self
    }
}

impl FromStr for AgentUri {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::read(text).map_err(|why| format!("is no agent:// name ({why})"))
    }
}

impl fmt::Display for AgentUri {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("agent")?;
        if let Some(protocol) = &self.protocol {
            write!(to, "+{protocol}")?;
        }
        write!(to, "://{}{}", self.authority, self.path)?;
        if let Some(query) = &self.query {
            write!(to, "?{query}")?;
        }
        self.fragment.as_ref().map_or(Ok(()), |fragment| write!(to, "#{fragment}"))
    }
}

fn cut(text: &str, at: char) -> (&str, Option<&str>) {
    text.split_once(at).map_or((text, None), |(before, after)| (before, Some(after)))
}

/// `agent`, or `agent+` and `1*(ALPHA / DIGIT / "-")`; schemes have no case (RFC 3986 §3.1).
fn protocol(scheme: &str) -> Result<Option<Box<str>>, Misread> {
    let wrong = |at, why| Misread { at, why };
    let (agent, protocol) = cut(scheme, '+');
    if !agent.eq_ignore_ascii_case("agent") {
        return Err(wrong(0, "the name does not begin with agent:// or agent+…://"));
    }
    let Some(protocol) = protocol else { return Ok(None) };
    let at = agent.len() + 1;
    if !(1..=LONGEST_PROTOCOL).contains(&protocol.len()) {
        return Err(wrong(at, "the transport after agent+ has 1 to 32 letters, digits and hyphens"));
    }
    match protocol.bytes().position(|byte| !byte.is_ascii_alphanumeric() && byte != b'-') {
        Some(within) => Err(wrong(at + within, "the transport after agent+ is letters, digits and hyphens")),
        None => Ok(Some(protocol.to_ascii_lowercase().into())),
    }
}

/// R50: opaque, but without what two readers could take apart differently.
fn read_path(path: &str) -> Result<(), Misread> {
    scan(path, Part::Path)?;
    let mut at = 0;
    for (number, segment) in path.split('/').enumerate() {
        let wrong = |why| Err(Misread { at, why });
        let last = at + segment.len() == path.len();
        match chars::dots(segment) {
            true => return wrong("the path has a dot segment ('.' or '..')"),
            false if number > MOST_SEGMENTS => return wrong("the path has more than 64 segments"),
            false if segment.is_empty() && number > 0 && !last => return wrong("the path has an empty segment ('//')"),
            false => at += segment.len() + 1,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
