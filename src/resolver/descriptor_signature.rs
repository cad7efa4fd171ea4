//! Verification of the signatures of descriptors (R100): JSON Web Signatures as on A2A cards, with the keys of the
//! name's authority. For a `did:web` these are the keys of its DID document, for a host those of the operator's file or
//! else those that the host publishes. A key that the descriptor itself names is never fetched.

use super::{
    did_web,
    document_cache::{DocumentCache, ResolverDocument},
    resolution_limiter::ResolutionPermit,
    resolution_step::ResolutionRequest,
    resolution_trace::{ResolutionTrace, StepOutcome},
    signature_status::{CheckResult, SignaturePolicy, SignatureStatus},
};
use crate::{
    agent::AgentUriAuthority,
    fault::{Fault, FaultCode},
    net::Url,
    signing::{SignatureFinding, TrustedKeys},
    values::sha256,
};
use serde_json::Value;
use std::sync::Arc;

/// Path at which a host publishes its keys.
const JWKS_PATH: &str = "/.well-known/jwks.json";

/// The keys of an authority.
struct AuthorityKeys {
    keys: Arc<TrustedKeys>,
    /// Digest of the text of the keys; that of the operator's keys never changes.
    digest: [u8; 32],
    /// Whether a signature by another key is invalid: these are all keys that may sign.
    are_complete: bool,
}

/// Verifies the signatures of a descriptor and applies the policy. Of a verified descriptor, only the part that the
/// signature covers is kept.
///
/// # Errors
/// `AgentError` for a signature that the policy refuses, `AgentUnavailable` if it requires one that cannot be checked
/// now, `Overloaded` if the caller has another check in progress for too long.
pub(super) async fn check_signatures(
    documents: &DocumentCache,
    document: &mut ResolverDocument,
    request: &ResolutionRequest,
    trace: &mut ResolutionTrace,
) -> Result<SignatureStatus, Fault> {
    let status = verify_document(documents, document, request, trace).await?;
    let Some((code, message)) = refusal(&status, documents.signatures().policy) else { return Ok(status) };
    let reason = format!("not accepted, {}", status.reason().unwrap_or("it is not signed"));
    trace.record_with_reason("agent.json", &document.url, StepOutcome::Unusable, Some(reason));
    Err(Fault::new(code, message))
}

/// Returns the fault for a status that the policy refuses.
fn refusal(status: &SignatureStatus, policy: SignaturePolicy) -> Option<(FaultCode, &'static str)> {
    match (status, policy) {
        (SignatureStatus::Verified, _) | (_, SignaturePolicy::Report) => None,
        (SignatureStatus::Invalid(_), _) => {
            Some((FaultCode::AgentError, "The signature of the agent's descriptor is not valid"))
        }
        (_, SignaturePolicy::RefuseInvalid) => None,
        (SignatureStatus::Unsigned, SignaturePolicy::Require) => {
            Some((FaultCode::AgentError, "The agent's descriptor is not signed, and a signature is required here"))
        }
        (SignatureStatus::NotVerified(_), SignaturePolicy::Require) => {
            Some((FaultCode::AgentUnavailable, "The signature of the agent's descriptor cannot be verified now"))
        }
    }
}

async fn verify_document(
    documents: &DocumentCache,
    document: &mut ResolverDocument,
    request: &ResolutionRequest,
    trace: &mut ResolutionTrace,
) -> Result<SignatureStatus, Fault> {
    // Some writers have a list without signatures.
    let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    let is_present = |name: &str| document.value.get(name).is_some_and(|value| !is_empty(value));
    if !is_present("signatures") {
        let is_other_kind = is_present("proof") || is_present("signature");
        let reason = "the signature is not a JSON Web Signature in 'signatures'";
        return Ok(match is_other_kind.then(|| SignatureStatus::NotVerified(reason.to_owned())) {
            Some(status) => status,
            None => SignatureStatus::Unsigned,
        });
    }
    let keys = match authority_keys(documents, request, trace).await {
        Ok(keys) => keys,
        Err(status) => return Ok(status),
    };
    let settings = documents.signatures();
    let digest = sha256(&[&sha256(&document.body)[..], &keys.digest, &[u8::from(keys.are_complete)]].concat());
    let result = match settings.results.get(&digest) {
        Some(result) => result,
        None => {
            // The permit ends with the check, also if the caller leaves.
            let permit = settings.checks.acquire(trace.caller()).await?;
            // Another request may have checked the same document meanwhile.
            match settings.results.get(&digest) {
                Some(result) => result,
                None => {
                    let result = verify_on_blocking_thread(document, keys, permit).await;
                    settings.results.insert(digest, result.clone());
                    result
                }
            }
        }
    };
    match result {
        Ok(part) => {
            document.value = part.select(std::mem::take(&mut document.value));
            Ok(SignatureStatus::Verified)
        }
        Err(status) => Ok(status),
    }
}

/// Verifies the signatures. Public keys are slow to compute with, and other servers chose how many there are.
async fn verify_on_blocking_thread(
    document: &mut ResolverDocument,
    AuthorityKeys { keys, are_complete, .. }: AuthorityKeys,
    permit: ResolutionPermit,
) -> CheckResult {
    let value = std::mem::take(&mut document.value);
    let verification = tokio::task::spawn_blocking(move || {
        let result = keys.verify_document(&value);
        drop(permit);
        (value, result)
    });
    let Ok((value, result)) = verification.await else {
        return Err(SignatureStatus::NotVerified("the check was interrupted".to_owned()));
    };
    document.value = value;
    result.map_err(|why| match why.finding {
        SignatureFinding::NotChecked => SignatureStatus::NotVerified(why.reason),
        SignatureFinding::OtherKey if !are_complete => SignatureStatus::NotVerified(why.reason),
        SignatureFinding::OtherKey | SignatureFinding::Invalid => SignatureStatus::Invalid(why.reason),
    })
}

/// Returns the keys of the name's authority, or the status without them.
async fn authority_keys(
    documents: &DocumentCache,
    request: &ResolutionRequest,
    trace: &mut ResolutionTrace,
) -> Result<AuthorityKeys, SignatureStatus> {
    let not_verified = |reason: &str| SignatureStatus::NotVerified(reason.to_owned());
    if let AgentUriAuthority::Did(did) = request.uri.authority() {
        let url = did_web::document_root(did).and_then(|root| root.did_document_url());
        let url = url.ok_or_else(|| not_verified("only did:web is supported"))?;
        let document = fetch_keys(documents, &url, trace).await;
        let document = document.ok_or_else(|| not_verified("the DID document could not be read"))?;
        if !did_web::is_document_of(did, &document.value) {
            return Err(not_verified("the DID document is that of another DID"));
        }
        let keys = TrustedKeys::from_jwks(&did_web::assertion_keys(did, &document.value));
        let no_key = |_| SignatureStatus::Invalid("the DID document has no usable key for assertions".to_owned());
        let keys = Arc::new(keys.map_err(no_key)?);
        return Ok(AuthorityKeys { keys, digest: sha256(&document.body), are_complete: true });
    }
    if let Some(keys) = &documents.signatures().publisher_keys {
        return Ok(AuthorityKeys { keys: Arc::clone(keys), digest: [0; 32], are_complete: true });
    }
    let host = request.uri.authority().host_and_port();
    let url = host.and_then(|host| Url::parse(&format!("https://{host}{JWKS_PATH}")).ok());
    let url = url.ok_or_else(|| not_verified("the name has no host that could publish keys"))?;
    let jwks = fetch_keys(documents, &url, trace).await;
    let jwks = jwks.ok_or_else(|| not_verified("the host publishes no keys at /.well-known/jwks.json"))?;
    let keys = TrustedKeys::from_jwks(&jwks.value).map_err(|_| not_verified("the host publishes no usable key"))?;
    // The keys of a host may be for other purposes: the signer may have another one.
    Ok(AuthorityKeys { keys: Arc::new(keys), digest: sha256(&jwks.body), are_complete: false })
}

/// Fetches a document with keys. The steps of the resolution stay as they are; its result is valid as long as the keys.
async fn fetch_keys(documents: &DocumentCache, url: &Url, trace: &mut ResolutionTrace) -> Option<ResolverDocument> {
    let mut key_trace = ResolutionTrace::for_caller(trace.caller());
    let document = documents.get_document(url, "keys", &mut key_trace).await;
    if let Some(expiry) = key_trace.expires() {
        trace.limit_expiry(expiry);
    }
    // The origin of the keys decides: a host that redirects elsewhere does not publish them itself.
    document.filter(|document| document.url.origin() == url.origin())
}
