//! Resolution without a fetch: names with an explicit transport (R51), and the operator's map.

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

/// Resolves a name with an explicit transport to its own address, in the syntax of endpoints.
///
/// # Errors
/// The transport is unknown, or the name has no address for the transport.
pub(super) fn explicit(uri: &AgentUri, protocol: &str, trace: &mut Trail) -> Result<Led, Fault> {
    let refuse = |why: String| Fault::new(Code::InvalidInput, why);
    let url = |scheme: &str| match uri.authority() {
        Authority::Host { .. } => Ok(format!("{scheme}://{}{}", uri.authority(), uri.tail())),
        _ => Err(refuse(format!("A DID has no address for agent+{protocol} (omit the transport)"))),
    };
    let endpoint = match protocol {
        "https" | "http" | "wss" | "ws" => url(protocol)?,
        "unix" | "local" | "matrix" => uri.to_string(),
        other => {
            let known = "https, http, wss, ws, unix, local, matrix";
            return Err(refuse(format!("The transport '{other}' is not supported (supported: {known})")));
        }
    };
    trace.note("explicit", uri.bare(), Outcome::Found);
    Ok(Led::To(Box::new(Place { endpoint, ..Place::default() })))
}

/// Result of an entry of the map for one name.
pub(super) enum Mapped {
    Led(Led),
    /// URL of a descriptor, and the number of path segments in the entry's key.
    Descriptor(Url, usize),
}

/// Returns the result of the map entry with the longest path that the name is under.
///
/// # Errors
/// The rest of the name cannot be appended to the entry's target.
pub(super) fn mapped(map: &[(AgentUri, Target)], request: &Asked, trace: &mut Trail) -> Result<Option<Mapped>, Fault> {
    let fits = |name: &AgentUri| {
        if request.uri.authority() != name.authority() {
            return None;
        }
        let own: Vec<&str> = name.segments().collect();
        let under = request.segments.len() >= own.len();
        (under && request.segments.iter().zip(&own).all(|(one, other)| one == other)).then_some(own.len())
    };
    let fitting = map.iter().filter_map(|(name, target)| Some((fits(name)?, name, target)));
    let Some((at, name, target)) = fitting.max_by_key(|(at, ..)| *at) else { return Ok(None) };
    let lost = |why: String| {
        Fault::new(Code::NotFound, "The name does not resolve to an agent").detail(format!("names.map {name}: {why}"))
    };
    trace.note("map", name, Outcome::Found);
    let mapped = match target {
        Target::Descriptor(url) => Mapped::Descriptor(url.clone(), at),
        Target::Name(next) => Mapped::Led(Led::Name(named(&next.to_string(), request, at).map_err(lost)?)),
        Target::Endpoint(endpoint) => {
            let endpoint = request.behind(endpoint, at).map_err(lost)?;
            Mapped::Led(Led::To(Box::new(Place { endpoint, ..Place::default() })))
        }
    };
    Ok(Some(mapped))
}
