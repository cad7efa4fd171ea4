//! Authorisation: which credential counts, whose it is, and whether that caller may call the agent. All paths to a
//! refusal merge before they reveal anything: an agent that the caller may not call looks like an agent that does not
//! exist.

use super::{Asked, Auth, Caller, CallerKind, Presented, Refusal, caller::Verdict, refuse};
use crate::{agent::AuthKind, fault::Fault};
use http::{HeaderName, header};
use std::sync::Arc;

impl Auth {
    /// Authenticates the caller and authorises its call to the agent. `asked` is `None` if the agent does not exist:
    /// a caller with a valid credential then gets 404, and any other caller the 401 that existing agents return.
    ///
    /// API keys, cached tokens and known certificates are decided without waiting and without allocation.
    ///
    /// # Errors
    /// 400 for ambiguous credentials, 401, 403, 404, or 503 if a credential cannot be checked.
    pub async fn authorise(&self, presented: &Presented<'_>, asked: Option<Asked<'_>>) -> Result<Arc<Caller>, Refusal> {
        self.unambiguous(presented).map_err(unknown)?;
        match asked.and_then(|asked| self.at_once(presented, &asked)) {
            Some(caller) => Ok(caller),
            // Boxed, so that the future of the common path stays small.
            None => Box::pin(self.at_length(presented, asked)).await,
        }
    }

    /// Authenticates the caller by any credential, for requests that concern no agent.
    ///
    /// # Errors
    /// 400, 401 or 503, as [`Authorizer::authorize`] returns for an agent that does not exist.
    pub async fn identify(&self, presented: &Presented<'_>) -> Result<Arc<Caller>, Fault> {
        self.unambiguous(presented)?;
        self.anybody(presented).await
    }

    /// Authenticates the caller of a directory request; with `open`, a request without credentials is `anonymous`.
    ///
    /// # Errors
    /// As [`Authorizer::authenticate`].
    pub async fn visit(&self, presented: &Presented<'_>, open: bool) -> Result<Arc<Caller>, Fault> {
        self.unambiguous(presented)?;
        if open && self.is_bare(presented) {
            return Ok(Arc::clone(&self.anonymous));
        }
        self.anybody(presented).await
    }

    /// Returns whether `caller` may call the agent with the kind of credential it used (R3).
    pub fn lets(&self, caller: &Caller, asked: &Asked<'_>) -> bool {
        let kind = match asked.authentication.kind {
            AuthKind::ApiKey => caller.kind == CallerKind::Key,
            AuthKind::Bearer => caller.kind == CallerKind::Bearer,
            AuthKind::Mtls => caller.kind == CallerKind::Certificate,
            AuthKind::Open => true,
        };
        kind && may(caller, asked)
    }

    /// Refuses requests that repeat a credential, which two parsers could read differently.
    fn unambiguous(&self, presented: &Presented<'_>) -> Result<(), Fault> {
        let several = |name: &HeaderName| presented.headers.get_all(name).iter().nth(1).is_some();
        let keys = self.keys.as_ref().is_some_and(|keys| several(keys.header()));
        match several(&header::AUTHORIZATION) || keys || self.pages.as_ref().is_some_and(|p| several(p.header())) {
            true => Err(self.challenges.ambiguous()),
            false => Ok(()),
        }
    }

    /// Authorises the common call: the required credential is valid and cached, and a grant allows the call.
    pub(super) fn at_once(&self, presented: &Presented<'_>, asked: &Asked<'_>) -> Option<Arc<Caller>> {
        let verdict = match asked.authentication.kind {
            AuthKind::ApiKey => self.by_key(presented),
            AuthKind::Mtls => self.by_certificate(presented),
            AuthKind::Bearer => self.bearer.as_ref()?.check_at_once(presented)?,
            AuthKind::Open => return self.open_at_once(presented, asked),
        };
        match verdict {
            Verdict::Known(caller) if may(&caller, asked) => Some(caller),
            _ => None,
        }
    }

    fn open_at_once(&self, presented: &Presented<'_>, asked: &Asked<'_>) -> Option<Arc<Caller>> {
        let by_token = || match &self.bearer {
            Some(bearer) => bearer.check_at_once(presented),
            None => Some(Verdict::NotMine),
        };
        let caller = match self.by_key(presented) {
            Verdict::Known(caller) => caller,
            Verdict::NotMine => match (by_token()?, self.by_certificate(presented)) {
                (Verdict::Known(caller), _) => caller,
                (Verdict::NotMine, Verdict::Known(caller)) => caller,
                (Verdict::NotMine, Verdict::NotMine) => Arc::clone(&self.anonymous),
                _ => return None,
            },
            _ => return None,
        };
        may(&caller, asked).then_some(caller)
    }

    async fn at_length(&self, presented: &Presented<'_>, asked: Option<Asked<'_>>) -> Result<Arc<Caller>, Refusal> {
        let verdict = match asked {
            Some(asked) => self.wanted(presented, asked.authentication.kind).await,
            None => Verdict::NotMine,
        };
        if let (Verdict::Known(caller), Some(asked)) = (&verdict, &asked)
            && caller.grants.meets(asked.grants)
        {
            let held = refuse::scopes_held(caller, asked.authentication, &self.challenges);
            return held.map(|()| Arc::clone(caller)).map_err(|fault| known(caller, fault));
        }
        // The required credential does not suffice. From here on, agents without a grant and missing agents look alike.
        let caller = self.anybody(presented).await.map_err(unknown)?;
        Err(match asked {
            Some(asked) if caller.grants.meets(asked.grants) => {
                known(&caller, self.challenges.wrong_kind(verdict, asked.authentication.kind))
            }
            Some(_) => known(&caller, refuse::unseen(self.access.unseen)),
            None => known(&caller, refuse::absent()),
        })
    }

    /// Checks the credential of the kind that the agent requires.
    async fn wanted(&self, presented: &Presented<'_>, kind: AuthKind) -> Verdict {
        match kind {
            AuthKind::ApiKey => self.by_key(presented),
            AuthKind::Mtls => self.by_certificate(presented),
            AuthKind::Bearer => self.by_token(presented).await,
            AuthKind::Open => match self.anybody(presented).await {
                Ok(caller) => Verdict::Known(caller),
                Err(_) if self.is_bare(presented) => Verdict::Known(Arc::clone(&self.anonymous)),
                Err(_) => Verdict::NotMine,
            },
        }
    }

    /// Authenticates by any credential. An invalid credential in a header is refused even if the connection's client
    /// certificate is valid: the caller meant the header.
    async fn anybody(&self, presented: &Presented<'_>) -> Result<Arc<Caller>, Fault> {
        let by_key = match self.by_key(presented) {
            Verdict::Known(caller) => return Ok(caller),
            verdict => verdict,
        };
        let by_token = match self.by_token(presented).await {
            Verdict::Known(caller) => return Ok(caller),
            Verdict::CannotTell(fault) => return Err(fault),
            verdict => verdict,
        };
        match (by_token, by_key) {
            (Verdict::Bad(bad), _) => Err(self.challenges.bad_token(&bad)),
            (_, Verdict::Bad(bad)) => Err(self.challenges.bad(&bad)),
            _ => match self.by_certificate(presented) {
                Verdict::Known(caller) => Ok(caller),
                Verdict::Bad(bad) => Err(self.challenges.bad(&bad)),
                _ => Err(self.challenges.missing()),
            },
        }
    }

    /// Returns whether the request has no credential of any configured kind.
    fn is_bare(&self, presented: &Presented<'_>) -> bool {
        let by_token = self.bearer.as_ref().and_then(|bearer| bearer.check_at_once(presented));
        matches!(self.by_key(presented), Verdict::NotMine)
            && matches!(self.by_certificate(presented), Verdict::NotMine)
            && (self.bearer.is_none() || matches!(by_token, Some(Verdict::NotMine)))
    }

    fn by_key(&self, presented: &Presented<'_>) -> Verdict {
        match self.pages.as_ref().map_or(Verdict::NotMine, |pages| pages.check(presented.headers)) {
            Verdict::NotMine => self.keys.as_ref().map_or(Verdict::NotMine, |keys| keys.check(presented.headers)),
            page => page,
        }
    }

    fn by_certificate(&self, presented: &Presented<'_>) -> Verdict {
        self.certificates.as_ref().map_or(Verdict::NotMine, |certificates| certificates.check(presented.peer))
    }

    async fn by_token(&self, presented: &Presented<'_>) -> Verdict {
        match &self.bearer {
            Some(bearer) => bearer.check(presented).await,
            None => Verdict::NotMine,
        }
    }
}

/// Returns whether grants and scopes allow the call, without revealing which of them is missing.
fn may(caller: &Caller, asked: &Asked<'_>) -> bool {
    caller.grants.meets(asked.grants) && refuse::holds_all(caller, asked.authentication)
}

fn unknown(fault: Fault) -> Refusal {
    Refusal { fault, caller: None }
}

fn known(caller: &Arc<Caller>, fault: Fault) -> Refusal {
    Refusal { fault, caller: Some(Arc::clone(caller)) }
}
