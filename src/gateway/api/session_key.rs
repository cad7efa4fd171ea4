//! What names the session of a request to an agent's API, so that the requests of a session reach one endpoint.

use super::{matched_route::MatchedRoute, preset::PresetSession};
use crate::{auth::Caller, transport};
use http::{HeaderName, request};

/// The longest name of a session, in bytes. A longer one names none.
const MAX_LENGTH: usize = 256;

/// Where the name of a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SessionKey {
    Header(HeaderName),
    /// A parameter of the query.
    Query(Box<str>),
    /// A parameter of the route's pattern.
    Path(Box<str>),
}

impl From<PresetSession> for SessionKey {
    fn from(session: PresetSession) -> Self {
        match session {
            PresetSession::Header(name) => Self::Header(HeaderName::from_static(name)),
            PresetSession::Query(name) => Self::Query(name.into()),
        }
    }
}

impl SessionKey {
    /// Returns the header field that names the session, if it is one.
    pub(super) fn header(&self) -> Option<&HeaderName> {
        match self {
            Self::Header(name) => Some(name),
            Self::Query(_) | Self::Path(_) => None,
        }
    }

    /// Returns a hash of the session that a request names. It covers the owner, so that two callers never share one.
    pub(super) fn hash(
        &self,
        head: &request::Parts,
        route: &MatchedRoute<'_, '_>,
        path: &str,
        caller: &Caller,
    ) -> Option<u64> {
        let name = match self {
            Self::Header(name) => head.headers.get(name)?.as_bytes(),
            Self::Query(name) => {
                let pairs = head.uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
                pairs.filter(|(own, _)| *own == &**name).map(|(_, value)| value).next()?.as_bytes()
            }
            Self::Path(name) => route.parameter(name, path)?.as_bytes(),
        };
        let is_usable = (1..=MAX_LENGTH).contains(&name.len());
        is_usable.then(|| transport::stable_hash(&[caller.owner_key.as_bytes(), name]))
    }
}
