//! Certificates in files: validity, order of the chain, names of listeners, authorities. What keeps the gateway from
//! starting, such as a key of another certificate, is a problem of the configuration already.

use super::{
    config_warnings::ConfigWalk,
    examined_config::ExaminedConfig,
    finding::{Finding, SubjectKind},
    finding_codes::FindingCode,
};
use crate::values::{
    CertificateDetails, CertificateValidity, ConfigPath, earliest_revocation_list_end, format_count, host_without_port,
};
use std::path::Path;
use time::{Duration, OffsetDateTime};

/// How long before its end a certificate is reported.
const EXPIRY_NOTICE: Duration = Duration::days(14);

/// Returns when a certificate expires, such as `expires in 3 days`, if it is valid now and ends within the time of notice.
pub(super) fn soon_expiry(validity: CertificateValidity, now: OffsetDateTime) -> Option<String> {
    let is_near = validity.problem_at(now).is_none() && validity.not_after < (now + EXPIRY_NOTICE).unix_timestamp();
    let days = (validity.not_after - now.unix_timestamp()) / Duration::DAY.whole_seconds();
    is_near.then(|| format!("expires in {}", format_count(days, "day")))
}

/// Returns the findings about the certificates that the configuration names. Reads files.
pub(super) fn certificate_findings(examined: ExaminedConfig<'_>) -> Vec<Finding> {
    let (walk, now) = (ConfigWalk::new(examined.config()), OffsetDateTime::now_utc());
    let mut findings = Vec::new();
    for (path, file) in &walk.certificates {
        let chain = CertificateDetails::read_file(file);
        findings.extend(own_certificate_findings(examined, path, file, &chain, now));
    }
    for (path, file) in &walk.authorities {
        let authorities = CertificateDetails::read_file(file);
        let expired = authority_finding(examined, path, file, &authorities, now);
        findings.extend(expired.or_else(|| leaf_finding(examined, path, file, &authorities)));
    }
    findings.extend(expired_revocation_lists(examined, now));
    findings.extend(uncovered_name(examined));
    findings
}

fn expired_revocation_lists(examined: ExaminedConfig<'_>, now: OffsetDateTime) -> Vec<Finding> {
    let listeners = examined.config().listeners.iter().enumerate();
    let lists = listeners.flat_map(|(at, listener)| {
        let files = listener.tls.iter().flat_map(|tls| tls.client_crl.iter().enumerate());
        files.map(move |(index, file)| (format!("listeners[{at}].tls.client_crl[{index}]"), file))
    });
    let expired =
        lists.filter(|(_, file)| earliest_revocation_list_end(file).is_some_and(|end| end < now.unix_timestamp()));
    let finding = |(path, file): (String, &ConfigPath)| {
        let problem = format!("{}: the list should have been replaced before now", file.display());
        examined.finding(FindingCode::RevocationListExpired, SubjectKind::Certificate, &path, &problem)
    };
    expired.map(finding).collect()
}

/// An expired certificate is a warning of the configuration, which this does not repeat.
fn own_certificate_findings(
    examined: ExaminedConfig<'_>,
    path: &str,
    file: &Path,
    chain: &[CertificateDetails],
    now: OffsetDateTime,
) -> Vec<Finding> {
    let finding = |code, problem: String| examined.finding(code, SubjectKind::Certificate, path, &problem);
    let mut findings = Vec::new();
    let name = file.display();
    if let Some(expiry) = chain.first().and_then(|leaf| soon_expiry(leaf.validity, now)) {
        findings.push(finding(FindingCode::CertificateExpiresSoon, format!("{name}: {expiry}")));
    }
    let issuers = chain.iter().skip(1);
    if let Some((certificate, _)) = chain.iter().zip(issuers.clone()).find(|(one, next)| one.issuer != next.subject) {
        let problem = format!(
            "{name}: the certificate of {} is not followed by that of its issuer, {}",
            certificate.subject, certificate.issuer
        );
        findings.push(finding(FindingCode::ChainBroken, problem));
    }
    if let Some(problem) = issuers.filter_map(|issuer| issuer.validity.problem_at(now)).next() {
        findings
            .push(finding(FindingCode::CertificateExpired, format!("{name}: of an issuer in the chain, {problem}")));
    }
    findings
}

/// Returns a finding where none of the authorities is valid: one that has expired beside its successor does no harm.
fn authority_finding(
    examined: ExaminedConfig<'_>,
    path: &str,
    file: &Path,
    authorities: &[CertificateDetails],
    now: OffsetDateTime,
) -> Option<Finding> {
    let problems: Option<Vec<String>> =
        authorities.iter().map(|authority| authority.validity.problem_at(now)).collect();
    let problem = problems?.into_iter().next()?;
    let problem = format!("{}: {problem}, and no other authority of the file is valid", file.display());
    Some(examined.finding(FindingCode::AuthorityExpired, SubjectKind::Certificate, path, &problem))
}

/// Returns a finding where no certificate of the file can be an authority. One that is its own issuer can be trusted by
/// itself.
fn leaf_finding(
    examined: ExaminedConfig<'_>,
    path: &str,
    file: &Path,
    authorities: &[CertificateDetails],
) -> Option<Finding> {
    let first = authorities.first()?;
    if authorities.iter().any(|authority| authority.is_authority || authority.is_self_issued()) {
        return None;
    }
    let problem = format!(
        "{}: the certificate of {} is not an authority's (basicConstraints has no CA:TRUE), so that no certificate is \
         accepted",
        file.display(),
        first.subject
    );
    let finding = examined.finding(FindingCode::AuthorityUnusable, SubjectKind::Certificate, path, &problem);
    Some(finding.with_fix(format!("name the certificate of its issuer, {}", first.issuer)))
}

/// Returns a finding where callers that use `directory.external_url` meet a certificate for another name. A proxy in
/// front may have its own: then the listeners trust proxies, or have no TLS.
fn uncovered_name(examined: ExaminedConfig<'_>) -> Option<Finding> {
    let config = examined.config();
    let url = config.directory.external_url.as_deref()?.strip_prefix("https://")?;
    let host = host_without_port(url.split(['/', '?', '#']).next().unwrap_or_default());
    if config.listeners.iter().any(|listener| !listener.trusted_proxies.is_empty()) {
        return None;
    }
    let leaves: Vec<(usize, CertificateDetails)> = config
        .listeners
        .iter()
        .enumerate()
        .filter_map(|(at, listener)| {
            let leaf = CertificateDetails::read_file(&listener.tls.as_ref()?.certificate).into_iter().next()?;
            Some((at, leaf))
        })
        .collect();
    let (at, _) = leaves.first()?;
    if leaves.iter().any(|(_, leaf)| leaf.covers_host(host)) {
        return None;
    }
    let path = format!("listeners[{at}].tls.certificate");
    let problem = format!("the certificate is not for {host}, the host of directory.external_url");
    let finding = examined.finding(FindingCode::NameNotCovered, SubjectKind::Certificate, &path, &problem);
    Some(finding.with_related(examined.exact_place("directory.external_url")))
}
