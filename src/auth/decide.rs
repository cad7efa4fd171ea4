//! One decision: which credential counts here, whose it is, and whether that caller may call the agent. The ways that
//! end in a refusal meet before they tell anything: an agent that the caller may not call is no agent.

use super::{Asked, Auth, Caller, CallerKind, Presented, Refusal, caller::Verdict, refuse};
use crate::{agent::AuthKind, fault::Fault};
use http::{HeaderName, header};
use std::sync::Arc;

impl Auth {
    /// Who calls, if it may call the agent in question. `asked` is `None` where there is no such agent: whoever has
    /// a credential then reads 404, and everybody else the same 401 as for an agent that is there.
    ///
    /// A key, a remembered token and a certificate seen before are decided without waiting and without allocation.
    ///
    /// # Errors
    /// 400 for credentials that can be read in two ways, 401, 403, 404, or 503 where it cannot be told.
    pub async fn authorise(&self, presented: &Presented<'_>, asked: Option<Asked<'_>>) -> Result<Arc<Caller>, Refusal> {
        self.unambiguous(presented).map_err(unknown)?;
        match asked.and_then(|asked| self.at_once(presented, &asked)) {
            Some(caller) => Ok(caller),
            // Boxed, so that the usual future stays small.
            None => Box::pin(self.at_length(presented, asked)).await,
        }
    }

    /// Who calls, by whichever credential counts; for what belongs to no agent.
    ///
    /// # Errors
    /// 400, 401 or 503, as [`Auth::authorise`] would answer for an agent that does not exist.
    pub async fn identify(&self, presented: &Presented<'_>) -> Result<Arc<Caller>, Fault> {
        self.unambiguous(presented)?;
        self.anybody(presented).await
    }

    /// Who looks at the directory: whoever [`Auth::identify`] finds, and `anonymous` where nothing is presented and
    /// `open` says that this will do.
    ///
    /// # Errors
    /// As [`Auth::identify`].
    pub async fn visit(&self, presented: &Presented<'_>, open: bool) -> Result<Arc<Caller>, Fault> {
        self.unambiguous(presented)?;
        if open && self.is_bare(presented) {
            return Ok(Arc::clone(&self.anonymous));
        }
        self.anybody(presented).await
    }

    /// Whether `caller` may call the agent in question with the credential that told who it is (R3).
    pub fn lets(&self, caller: &Caller, asked: &Asked<'_>) -> bool {
        let kind = match asked.authentication.kind {
            AuthKind::ApiKey => caller.kind == CallerKind::Key,
            AuthKind::Bearer => caller.kind == CallerKind::Bearer,
            AuthKind::Mtls => caller.kind == CallerKind::Certificate,
            AuthKind::Open => true,
        };
        kind && may(caller, asked)
    }

    /// Two values of one credential are two readings of one request.
    fn unambiguous(&self, presented: &Presented<'_>) -> Result<(), Fault> {
        let several = |name: &HeaderName| presented.headers.get_all(name).iter().nth(1).is_some();
        let keys = self.keys.as_ref().is_some_and(|keys| several(keys.header()));
        match several(&header::AUTHORIZATION) || keys || self.pages.as_ref().is_some_and(|p| several(p.header())) {
            true => Err(self.challenges.ambiguous()),
            false => Ok(()),
        }
    }

    /// The usual call: the credential that the agent asks for holds, is known, and is granted the agent.
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
        // Not this way. From here on an agent that the caller may not call and none at all are the same.
        let caller = self.anybody(presented).await.map_err(unknown)?;
        Err(match asked {
            Some(asked) if caller.grants.meets(asked.grants) => {
                known(&caller, self.challenges.wrong_kind(verdict, asked.authentication.kind))
            }
            Some(_) => known(&caller, refuse::unseen(self.access.unseen)),
            None => known(&caller, refuse::absent()),
        })
    }

    /// What the credential of the kind that an agent asks for says.
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

    /// Whoever it is, by any credential. One in a header that does not hold is told even where the connection's
    /// certificate would do: it was meant.
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

    /// Whether nothing was presented that could have told who calls.
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

/// Grants and scopes alike; without a word on which of them is missing.
fn may(caller: &Caller, asked: &Asked<'_>) -> bool {
    caller.grants.meets(asked.grants) && refuse::holds_all(caller, asked.authentication)
}

fn unknown(fault: Fault) -> Refusal {
    Refusal { fault, caller: None }
}

fn known(caller: &Arc<Caller>, fault: Fault) -> Refusal {
    Refusal { fault, caller: Some(Arc::clone(caller)) }
}
