//! What needs no asking: names with a transport of their own (R51), and the map that the operator wrote.

use super::{
    config::Target,
    led::{Asked, Led, Place, named},
    trail::{Outcome, Trail},
};
use crate::{
    agent::{AgentUri, Authority},
    fault::{Code, Fault},
    net::Url,
};

/// Where a name with a transport is called: where it says, in the words that endpoints have.
///
/// # Errors
/// The transport is not known, or has no such addresses.
pub(super) fn explicit(uri: &AgentUri, protocol: &str, trail: &mut Trail) -> Result<Led, Fault> {
    let refuse = |why: String| Fault::new(Code::InvalidInput, why);
    let url = |scheme: &str| match uri.authority() {
        Authority::Host { .. } => Ok(format!("{scheme}://{}{}", uri.authority(), uri.tail())),
        _ => Err(refuse(format!("a DID has no address for agent+{protocol} (leave the transport out)"))),
    };
    let endpoint = match protocol {
        "https" | "http" | "wss" | "ws" => url(protocol)?,
        "unix" | "local" | "matrix" => uri.to_string(),
        other => {
            let known = "https, http, wss, ws, unix, local, matrix";
            return Err(refuse(format!("agents are not reached by '{other}' here (known transports: {known})")));
        }
    };
    trail.note("explicit", uri.bare(), Outcome::Found);
    Ok(Led::To(Box::new(Place { endpoint, ..Place::default() })))
}

/// What an entry of the map leads to for one name.
pub(super) enum Mapped {
    Led(Led),
    /// A descriptor, and how many segments of the path the entry has.
    Descriptor(Url, usize),
}

/// The entry with the longest path that the name lies under.
///
/// # Errors
/// What is left of the name cannot stand behind what the entry leads to.
pub(super) fn mapped(map: &[(AgentUri, Target)], asked: &Asked, trail: &mut Trail) -> Result<Option<Mapped>, Fault> {
    let fits = |name: &AgentUri| {
        if asked.uri.authority() != name.authority() {
            return None;
        }
        let own: Vec<&str> = name.segments().collect();
        let under = asked.segments.len() >= own.len();
        (under && asked.segments.iter().zip(&own).all(|(one, other)| one == other)).then_some(own.len())
    };
    let fitting = map.iter().filter_map(|(name, target)| Some((fits(name)?, name, target)));
    let Some((at, name, target)) = fitting.max_by_key(|(at, ..)| *at) else { return Ok(None) };
    let lost =
        |why: String| Fault::new(Code::NotFound, "the name leads nowhere").detail(format!("names.map {name}: {why}"));
    trail.note("map", name, Outcome::Found);
    let mapped = match target {
        Target::Descriptor(url) => Mapped::Descriptor(url.clone(), at),
        Target::Name(next) => Mapped::Led(Led::Name(named(&next.to_string(), asked, at).map_err(lost)?)),
        Target::Endpoint(endpoint) => {
            let endpoint = asked.behind(endpoint, at).map_err(lost)?;
            Mapped::Led(Led::To(Box::new(Place { endpoint, ..Place::default() })))
        }
    };
    Ok(Some(mapped))
}
