//! Authentication by client certificate. The listener requests the certificate and verifies its chain; the agent's
//! `authentication` decides whether it counts.

use super::{
    Peer,
    access::Access,
    caller::{Bad, Caller, CallerKind, Verdict, is_name, now},
    config,
};
use std::sync::Arc;

/// Maximum number of certificates whose caller is cached.
const MOST: u64 = 100_000;

#[derive(Debug)]
pub(super) struct Certificates {
    config: config::Mtls,
    access: Arc<Access>,
    seen: moka::sync::Cache<[u8; 32], Arc<Caller>>,
}

impl Certificates {
    pub(super) fn build(config: &config::Mtls, access: Arc<Access>) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        if config.caller_from.is_empty() {
            problems.push(
                "mtls.caller_from: is empty (write san_uri, san_dns, san_email, subject_cn, subject or fingerprint)"
                    .to_owned(),
            );
        }
        let names = config.callers.iter().flat_map(|(name, caller)| caller.groups.iter().chain([name]));
        problems
            .extend(names.filter(|name| !is_name(name)).map(|name| format!("mtls.callers: {name:?} is not a name")));
        match problems.is_empty() {
            true => Ok(Self { config: config.clone(), access, seen: moka::sync::Cache::new(MOST) }),
            false => Err(problems),
        }
    }

    /// Checks a certificate without I/O, and without allocation if its caller is cached.
    pub(super) fn check(&self, peer: Option<&Peer>) -> Verdict {
        let Some(peer) = peer else {
            return Verdict::NotMine;
        };
        if !peer.is_valid_at(now()) {
            return Verdict::Bad(Bad::new("the client certificate has expired"));
        }
        match self.seen.get(peer.fingerprint()).or_else(|| self.read(peer)) {
            Some(caller) => Verdict::Known(caller),
            None => Verdict::Bad(Bad::new("the client certificate has no caller name").detail(peer.subject())),
        }
    }

    fn read(&self, peer: &Peer) -> Option<Arc<Caller>> {
        let name = self.config.caller_from.iter().find_map(|kind| peer.name(*kind)).filter(|name| is_name(name))?;
        let known = self.config.callers.get(&name);
        let groups: Arc<[Arc<str>]> =
            known.map(|known| known.groups.iter().map(|group| group.as_str().into()).collect()).unwrap_or_default();
        let id: Arc<str> = format!("cert:{name}").into();
        let caller = Arc::new(Caller {
            grants: self.access.for_caller(&id, &groups),
            id,
            kind: CallerKind::Certificate,
            groups,
            scopes: Arc::default(),
            tier: known.and_then(|known| known.tier.as_deref()).map(Into::into),
        });
        self.seen.insert(*peer.fingerprint(), Arc::clone(&caller));
        Some(caller)
    }
}
