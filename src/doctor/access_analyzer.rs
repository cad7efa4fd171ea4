//! Who may call what: grants that allow nothing, callers that cannot exist, audiences that are not the gateway's.

use super::{
    access_rules::NamingRule,
    caller_analyzer::caller_findings,
    examined_config::ExaminedConfig,
    finding::{Finding, SubjectKind},
    finding_codes::FindingCode,
};
use crate::{
    auth::{ANONYMOUS, GrantConfig, IssuerConfig},
    net::Url,
};

/// Returns the findings about grants, denials and issuers that need no other machine. Reads the files of API keys.
pub(super) fn access_findings(examined: ExaminedConfig<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = missing_access(examined).into_iter().collect();
    findings.extend(caller_findings(examined));
    findings.extend(cancelled_grants(examined));
    findings.extend(suspicious_audiences(examined));
    findings
}

fn missing_access(examined: ExaminedConfig<'_>) -> Option<Finding> {
    let config = examined.config();
    if config.access.grants.is_empty() {
        let problem = "there is no grant, so that no caller can call any agent";
        return Some(examined.finding(FindingCode::NoGrants, SubjectKind::Setting, "access.grants", problem));
    }
    let auth = &config.auth;
    let has_method = auth.api_keys.is_some() || auth.bearer.is_some() || auth.mtls.is_some();
    let has_pairing = config.cors.as_ref().is_some_and(|cors| cors.pairing.is_some());
    let needs_credential = |grant: &GrantConfig| {
        !grant.groups.is_empty() || grant.callers.iter().any(|caller| caller.as_str() != ANONYMOUS)
    };
    let at = config.access.grants.iter().position(needs_credential).filter(|_| !has_method && !has_pairing)?;
    let problem = "the grant is for callers with a credential, and the section auth accepts none";
    let path = format!("access.grants[{at}]");
    Some(examined.finding(FindingCode::NoAuthentication, SubjectKind::Setting, &path, problem))
}

/// Returns the denials that refuse everything that a grant allows. Grants with patterns allow more than names show.
fn cancelled_grants(examined: ExaminedConfig<'_>) -> Vec<Finding> {
    let config = examined.config();
    let (grants, denials) = (NamingRule::grants(config), NamingRule::denials(config));
    let mut findings = Vec::new();
    for denial in &denials {
        let Some(grant) = grants.iter().find(|grant| denial.covers(grant)) else { continue };
        let problem = format!("the denial refuses everything that {} allows", grant.path);
        let finding = examined.finding(FindingCode::GrantCancelled, SubjectKind::Setting, &denial.path, &problem);
        findings.push(finding.with_related(examined.exact_place(&grant.path)));
    }
    findings
}

/// Returns the issuers none of whose audiences can be this gateway: each is the issuer itself, or the URL of another
/// server than `directory.external_url`. Audiences that are names can be anything.
fn suspicious_audiences(examined: ExaminedConfig<'_>) -> Vec<Finding> {
    let config = examined.config();
    let own = config.directory.external_url.as_deref().and_then(|url| Url::parse(url).ok());
    let issuers = config.auth.bearer.iter().flat_map(|bearer| bearer.issuers.iter().enumerate());
    let finding = |(at, issuer): (usize, &IssuerConfig)| {
        let reasons: Option<Vec<String>> =
            issuer.audience.iter().map(|audience| audience_problem(audience, issuer, own.as_ref())).collect();
        let problem = reasons?.into_iter().next()?;
        let path = format!("auth.bearer.issuers[{at}].audience");
        let finding = examined.finding(FindingCode::AudienceSuspicious, SubjectKind::Issuer, &path, &problem);
        Some(finding.with_related(examined.exact_place("directory.external_url")))
    };
    issuers.filter_map(finding).collect()
}

fn audience_problem(audience: &str, issuer: &IssuerConfig, own: Option<&Url>) -> Option<String> {
    if audience.trim_end_matches('/') == issuer.issuer.trim_end_matches('/') {
        return Some(format!("the audience {audience} is the issuer itself, for which no token to a gateway is"));
    }
    let url = Url::parse(audience).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    let own = own.filter(|own| own.origin() != url.origin())?;
    Some(format!("the audience {audience} is another server than directory.external_url, {own}"))
}
