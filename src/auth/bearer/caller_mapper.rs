//! Mapping of a token's claims to a caller. A name that a token states counts for its issuer only: groups and tiers carry
//! the issuer's label, or must be in the issuer's allow list, so that no issuer can place its callers in a group that
//! the operator meant for API keys, certificates or another issuer.

use super::claims::{TokenClaims, string_list};
use crate::{
    agent::{AuthenticationMethod, client_name_in_id, user_owner_key},
    auth::{
        authenticator::InvalidCredential,
        build_context::BuildContext,
        caller::{Caller, is_valid_name},
        caller_claims::CallerClaims,
        config::ClaimMappingConfig,
        grants::GrantIndex,
    },
    values::Glob,
};
use serde_json::Value;
use std::sync::Arc;

/// Maps the claims of one token source to callers.
#[derive(Debug)]
pub(super) struct CallerMapper {
    label: Option<String>,
    mapping: ClaimMappingConfig,
    grants: Arc<GrantIndex>,
    /// The claims that agents are told.
    told_claims: Arc<[Arc<str>]>,
}

impl CallerMapper {
    pub(super) fn build(
        label: Option<&str>,
        mapping: &ClaimMappingConfig,
        context: &BuildContext<'_>,
    ) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let is_valid_label = |label: &str| {
            !label.is_empty()
                && label.len() <= 64
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        };
        if label.is_some_and(|label| !is_valid_label(label)) {
            problems.push("label: is not valid (1 to 64 of A-Z a-z 0-9 . _ -)".to_owned());
        }
        if mapping.caller.is_empty() {
            problems.push("claims.caller: is empty (client_id, azp and sub are usual)".to_owned());
        }
        if mapping.tier.is_some() && label.is_none() && mapping.allowed_tiers.is_empty() {
            problems.push(
                "claims.tier: has no effect (write label, for tiers LABEL/TIER, or claims.allowed_tiers)".to_owned(),
            );
        }
        if problems.is_empty() {
            let told_claims = Arc::clone(&context.services.told_claims);
            let (label, mapping) = (label.map(str::to_owned), mapping.clone());
            return Ok(Self { label, mapping, grants: Arc::clone(context.grants), told_claims });
        }
        Err(problems)
    }

    pub(super) fn caller_from_claims(&self, claims: &TokenClaims) -> Result<Arc<Caller>, InvalidCredential> {
        let name = self.mapping.caller.iter().find_map(|path| claims.find_claim(path));
        let name = name.and_then(Value::as_str).filter(|name| is_valid_name(name)).ok_or_else(|| {
            let claims = self.mapping.caller.join(", ");
            InvalidCredential::new("the token has no caller name").with_detail(format!("looked for {claims}"))
        })?;
        let prefix = AuthenticationMethod::Bearer.caller_id_prefix();
        let id: Arc<str> = match &self.label {
            Some(label) => format!("{prefix}{label}/{}", client_name_in_id(name)).into(),
            None => format!("{prefix}{}", client_name_in_id(name)).into(),
        };
        let groups = self.groups(claims)?;
        Ok(Arc::new(Caller {
            grants: self.grants.rules_for_caller(&id, &groups),
            owner_key: owner_key(&id, name, claims)?,
            id,
            method: AuthenticationMethod::Bearer,
            groups: groups.into(),
            scopes: scopes(claims)?,
            tier: self.tier(claims),
            claims: CallerClaims::select(&self.told_claims, |path| claims.find_claim(path)),
        }))
    }

    /// Returns the caller's groups: each as `label/group`, and those in the allow list by their plain name as well. Both
    /// names count, so that an entry in the allow list never takes a caller out of a rule.
    fn groups(&self, claims: &TokenClaims) -> Result<Vec<Arc<str>>, InvalidCredential> {
        let claim = claims.find_claim(&self.mapping.groups);
        let stated = claim.map(|value| string_list(value, false)).transpose()?.unwrap_or_default();
        let qualified = stated.iter().filter_map(|group| self.qualify(group));
        let allowed = stated.iter().filter(|group| is_allowed(&self.mapping.allowed_groups, group));
        Ok(qualified.chain(allowed.map(|group| (*group).into())).collect())
    }

    /// Returns the caller's tier, of which there is one: the plain name if it is in the allow list, or `label/tier`.
    fn tier(&self, claims: &TokenClaims) -> Option<Arc<str>> {
        let claim = self.mapping.tier.as_deref().and_then(|path| claims.find_claim(path));
        let tier = claim.and_then(Value::as_str).filter(|tier| is_valid_name(tier))?;
        if is_allowed(&self.mapping.allowed_tiers, tier) { Some(tier.into()) } else { self.qualify(tier) }
    }

    /// Returns `label/name`; `None` if the issuer has no label.
    fn qualify(&self, name: &str) -> Option<Arc<str>> {
        self.label.as_ref().map(|label| format!("{label}/{name}").into())
    }
}

/// Returns the owner of what the token's user creates: the caller's id, with the client and the subject where they differ
/// from the caller's name. A token whose subject is the client itself (RFC 9068 §2.2) belongs to the client.
///
/// # Errors
/// A client or subject that is not a valid name: the token would otherwise pass for one of the client itself.
fn owner_key(id: &Arc<str>, name: &str, claims: &TokenClaims) -> Result<Arc<str>, InvalidCredential> {
    let client = claims.find_claim("client_id").or_else(|| claims.find_claim("azp"));
    let mut names = Vec::new();
    for (label, claim) in [("client", client), ("sub", claims.find_claim("sub"))] {
        let Some(claim) = claim else { continue };
        let part = claim.as_str().filter(|part| is_valid_name(part));
        let part = part.ok_or_else(|| InvalidCredential::new("the token's client or subject is malformed"))?;
        if part != name {
            names.push((label, part));
        }
    }
    let key = user_owner_key(id, &names);
    Ok(if *key == **id { Arc::clone(id) } else { key.into() })
}

/// Returns whether the allow list has `name`. A pattern without a slash matches no name with one: `*` does not let an
/// issuer claim `label/group` of another issuer.
fn is_allowed(allowed: &[Glob], name: &str) -> bool {
    allowed.iter().any(|pattern| pattern.matches(name) && (pattern.as_str().contains('/') || !name.contains('/')))
}

fn scopes(claims: &TokenClaims) -> Result<Arc<[Arc<str>]>, InvalidCredential> {
    let mut scopes = Vec::new();
    for claim in ["scope", "scp"].into_iter().filter_map(|name| claims.find_claim(name)) {
        scopes.extend(string_list(claim, true)?.into_iter().map(Arc::from));
    }
    Ok(scopes.into())
}
