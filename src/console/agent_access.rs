//! Who may call an agent: the grants and denials that name it, with their lines in the configuration.

use super::console_context::ConfigInForce;
use crate::{agent::Agent, values::Glob};
use maud::{Markup, html};

/// Maximum number of rules of each kind that are shown.
const MAX_RULES: usize = 50;

/// Maximum number of patterns that are shown for one rule.
const MAX_PATTERNS: usize = 30;

/// A grant or denial that names the agent.
struct AccessRuleRow<'a> {
    kind: &'static str,
    path: String,
    callers: &'a [Glob],
    groups: &'a [Glob],
}

/// Returns the section about who may call the agent.
pub(super) fn access_section(agent: &Agent, config: &ConfigInForce) -> Markup {
    let access = &config.config.access;
    let grants = access.grants.iter().enumerate().filter(|(_, grant)| grant.names_agent(agent));
    let grants = grants.map(|(at, grant)| AccessRuleRow {
        kind: "grant",
        path: format!("access.grants[{at}]"),
        callers: &grant.callers,
        groups: &grant.groups,
    });
    let denials = access.denials.iter().enumerate().filter(|(_, denial)| denial.names_agent(agent));
    let denials = denials.map(|(at, denial)| AccessRuleRow {
        kind: "denial",
        path: format!("access.denials[{at}]"),
        callers: &denial.callers,
        groups: &denial.groups,
    });
    let (grants, denials): (Vec<_>, Vec<_>) = (grants.collect(), denials.collect());
    let hidden = grants.len().saturating_sub(MAX_RULES) + denials.len().saturating_sub(MAX_RULES);
    html! {
        section .card {
            h2 { "Who may call it" }
            @if grants.is_empty() {
                p { "No grant names this agent, so that no caller may call it. Grants are in " code { "access.grants" } "." }
            }
            @if !grants.is_empty() || !denials.is_empty() {
                div .table-scroll tabindex="0" {
                    table {
                        caption { "A caller needs a grant that names it. A denial outweighs every grant." }
                        thead { tr { @for name in ["Rule", "Callers", "Groups", "Line"] { th scope="col" { (name) } } } }
                        tbody {
                            @for row in denials.iter().take(MAX_RULES).chain(grants.iter().take(MAX_RULES)) {
                                tr {
                                    th scope="row" { (row.kind) " " code { (row.path) } }
                                    td { (patterns(row.callers)) }
                                    td { (patterns(row.groups)) }
                                    td { (config.locations.locate(&row.path).unwrap_or_else(|| "–".to_owned())) }
                                }
                            }
                        }
                    }
                }
            }
            @if hidden > 0 { p .muted { (hidden) " more rules name this agent." } }
        }
    }
}

fn patterns(patterns: &[Glob]) -> Markup {
    html! {
        @if patterns.is_empty() { "–" }
        @for (at, pattern) in patterns.iter().take(MAX_PATTERNS).enumerate() {
            @if at > 0 { ", " }
            code { (pattern) }
        }
        @if patterns.len() > MAX_PATTERNS { ", and " (patterns.len() - MAX_PATTERNS) " more" }
    }
}
