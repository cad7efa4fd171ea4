//! `POST /resolve` (R52–R64): resolution of `agent://` names. Names under the gateway's own host are its visible
//! agents; the resolver handles all others.

use super::{
    Answer, Ask, Directory,
    address::invoke,
    body::{self, Members, Wrong},
    caching::Page,
    document::no_agent,
    media,
};
use crate::{
    agent::{AgentUri, Authority, LONGEST_URI, Operation, Unmet, Versions, segment},
    fault::{Code, Fault, Result, Violation},
    names::{Outcome, Resolved, Step, version_place},
};
use http::{StatusCode, Uri};

/// Maximum size of a body in bytes.
const LARGEST: usize = 32 << 10;
/// Path segments under an agent that are not operations.
const FACES: &[&str] = &["invoke", "agent.json", ".well-known", "agent-card.json"];

impl Directory {
    /// `POST /resolve`.
    pub(super) async fn resolve_name(&self, call: &Ask<'_>) -> Result<Answer> {
        media::choose(call.headers, &[media::JSON])?;
        let (uri, version) = read(call)?;
        let resolved = match is_own(&uri, call.base) {
            true => own(call, &uri, version.as_deref())?,
            false => {
                let names = self.names.as_ref();
                let names = names.ok_or_else(|| Fault::new(Code::NotFound, "Name resolution is not enabled here"))?;
                names.resolve(&uri, version.as_deref(), &call.caller.id).await?
            }
        };
        let page = Page::json(media::JSON, &resolved.public())?;
        Ok(Answer::written(StatusCode::OK, page.into_body()))
    }
}

/// Parses the name and the requested version.
fn read(call: &Ask<'_>) -> Result<(AgentUri, Option<String>)> {
    let body = body::json(call, &[media::JSON], LARGEST, 8)?;
    let mut violations = Wrong::default();
    let members = Members::of(&body, &mut violations);
    let uri = members.text(&["uri", "url", "name"], LONGEST_URI, &mut violations);
    let version = members.text(&["version"], 64, &mut violations).filter(|version| !version.trim().is_empty());
    violations.none("The request is not valid")?;
    let missing = || Fault::new(Code::InvalidInput, "The body has no member 'uri' (an agent:// name)");
    let uri = AgentUri::read(uri.ok_or_else(missing)?).map_err(|why| {
        let violation = Violation { pointer: "/uri".to_owned(), message: why.to_string() };
        Fault::new(Code::InvalidInput, format!("The uri is not an agent:// name ({why})")).violations(vec![violation])
    })?;
    let broken = |why| {
        let violation = Violation { pointer: "/uri".to_owned(), message: why };
        Fault::new(Code::InvalidInput, "The query of the uri is not valid").violations(vec![violation])
    };
    uri.input().map_err(|why| broken(why.to_owned()))?;
    Ok((uri, version.map(str::to_owned)))
}

/// Whether a name is under the gateway's own host, as the caller addressed it.
fn is_own(uri: &AgentUri, base: &str) -> bool {
    let (None, Authority::Host { host, port }) = (uri.protocol(), uri.authority()) else { return false };
    let Ok(base) = base.parse::<Uri>() else { return false };
    let usual = if base.scheme_str() == Some("http") { 80 } else { 443 };
    let same = base.host().is_some_and(|own| own.eq_ignore_ascii_case(host));
    same && port.is_none_or(|port| port == base.port_u16().unwrap_or(usual))
}

/// Resolves `agent://{gateway}/[agents/]{id}[@version][/operation]`; unknown and invisible agents give the same fault.
fn own(call: &Ask<'_>, uri: &AgentUri, version: Option<&str>) -> Result<Resolved> {
    let mut segments = uri.segments().filter(|part| !FACES.contains(part)).peekable();
    segments.next_if_eq(&"agents");
    let named = segments.next().ok_or_else(no_agent)?;
    let (id, within) = named.split_once('@').map_or((named, None), |(id, version)| (id, Some(version)));
    let agent = call.sight.find(id).ok_or_else(no_agent)?;
    let operation = segments.next();
    if segments.next().is_some() || operation.is_some_and(|name| agent.operation(name).is_none()) {
        return Err(Fault::new(Code::CapabilityNotFound, "The agent has no such operation"));
    }
    let declared = match operation.and_then(|name| agent.operation(name)) {
        Some((_, operation)) => operation.takes_version(),
        None => agent.operations.iter().any(Operation::takes_version),
    };
    // Only versions that calls can reach.
    let reached = |place: &str| version_place(&agent.endpoint, place).is_some();
    let versions = agent.versions.only(|served| served.place.as_deref().is_none_or(reached));
    // As for calls: a version parameter that the agent declares as its input is passed through.
    let ours = !declared && !versions.is_empty();
    let in_query = || ours.then(|| uri.parameter("version")).flatten();
    let asked = version.map(str::to_owned).or_else(|| within.and_then(segment)).or_else(in_query);
    let chosen = match &asked {
        None => versions.latest().map(|(at, _)| at),
        Some(asked) => Some(versions.pick(asked).map_err(|why| unmet(why, &versions))?),
    };
    let label = chosen.and_then(|at| versions.iter().nth(at)).map(|served| served.label.to_string());
    let addressed = match label.as_ref().filter(|_| asked.is_some()) {
        Some(label) => format!("{id}@{label}"),
        None => id.to_owned(),
    };
    // The version is in the path only: a second parameter would have to agree with it.
    let kept = |pair: &&str| !(ours && asked.is_some() && pair.starts_with("version="));
    let query: Vec<&str> = uri.query().into_iter().flat_map(|query| query.split('&')).filter(kept).collect();
    let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
    let descriptor = format!("{}/agents/{id}/agent.json", call.base);
    Ok(Resolved {
        uri: uri.clone(),
        endpoint: format!("{}{query}", invoke(call.base, &addressed, operation.unwrap_or_default())),
        version: label,
        versions: versions.iter().map(|served| served.label.to_string()).collect(),
        operation: None,
        signed: false,
        how: vec![Step { kind: "own", at: descriptor.clone(), outcome: Outcome::Found, why: None }],
        descriptor: Some(descriptor),
        until: None,
    })
}

/// Builds the fault for a version that is malformed or unknown.
fn unmet(why: Unmet, versions: &Versions) -> Fault {
    match why {
        Unmet::Malformed => {
            Fault::new(Code::InvalidInput, "The version is not valid (write 1.2.3, or a range such as ^1.2 or 1.x)")
        }
        Unmet::Unknown => {
            let message = format!("The agent has no such version (it has: {})", versions.labels());
            Fault::new(Code::NotAcceptable, message)
        }
    }
}
