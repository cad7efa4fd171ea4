//! The configuration in force: its file, what differs from the defaults and where that is written, and all of it.

use super::{
    changed_settings::{ChangedSetting, changed_settings, redacted_settings},
    console_context::{ConfigInForce, ConsoleContext},
    console_page::Visitor,
    page_thread::build_page,
};
use crate::{
    telemetry::redact,
    values::format_count,
    web_page::{Notice, facts, notice, pager, query_string, text_field, time_ago, time_text},
};
use axum::{
    extract::{Query, State},
    response::Response,
};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

/// The path of the page.
pub(super) const CONFIGURATION_PATH: &str = "/console/configuration";

/// Settings on one page.
const PAGE_ROWS: usize = 100;

/// Maximum bytes of a value in the table.
const MAX_VALUE_BYTES: usize = 300;

/// Maximum bytes of the whole configuration on the page.
const MAX_TEXT_BYTES: usize = 256 << 10;

/// Which settings are listed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SettingFilter {
    /// Part of the path.
    q: String,
    /// Number of settings before the page.
    from: String,
}

/// Shows the page.
pub(super) async fn show_configuration(
    State(context): State<ConsoleContext>,
    visitor: Visitor,
    Query(filter): Query<SettingFilter>,
) -> Response {
    build_page(move || {
        let in_force = context.source.config_in_force();
        let config_error = context.admin.health().config_error;
        let content = html! {
            div .page-head { h1 { "Configuration" } p { "What is in force, not what the file says now" } }
            @if let Some(problems) = &config_error {
                (notice(Notice::Bad, &html! {
                    p { strong { "The file was changed, and the change was rejected. The configuration before is in force." } }
                    pre { (redact(problems)) }
                }))
            }
            @if !in_force.waiting_for_restart.is_empty() {
                (notice(Notice::Warning, &html! {
                    p { "Changes of these sections take effect at the next start: " (in_force.waiting_for_restart.join(", ")) "." }
                }))
            }
            section .card { h2 { "In force" } (file_facts(&in_force)) }
            (changed_section(&in_force, &filter))
            (whole_section(&in_force))
        };
        visitor.page("Configuration", CONFIGURATION_PATH, &content)
    })
    .await
}

fn file_facts(in_force: &ConfigInForce) -> Markup {
    let loaded_at = in_force.loaded_at;
    facts([
        ("File", Some(html! { code { (in_force.file_name) } }).filter(|_| !in_force.file_name.is_empty())),
        ("SHA-256", in_force.file_digest.as_ref().map(|digest| html! { code { (digest) } })),
        ("In force since", Some(html! { (time_text(loaded_at)) " (" (time_ago(loaded_at)) ")" })),
        (
            "Waits for a restart",
            Some(html! {
                @if in_force.waiting_for_restart.is_empty() { "nothing" }
                @else { (in_force.waiting_for_restart.join(", ")) }
            }),
        ),
    ])
}

fn changed_section(in_force: &ConfigInForce, filter: &SettingFilter) -> Markup {
    let changed = changed_settings(&in_force.config, &in_force.locations);
    let part = filter.q.trim().to_ascii_lowercase();
    let matching: Vec<&ChangedSetting> =
        changed.iter().filter(|setting| setting.path.to_ascii_lowercase().contains(&part)).collect();
    let from = filter.from.parse().unwrap_or(0_usize).min(matching.len());
    let rows = matching.get(from..).unwrap_or_default();
    let next = (rows.len() > PAGE_ROWS).then(|| (from + PAGE_ROWS).to_string());
    let link = |from: &str| format!("{CONFIGURATION_PATH}{}", query_string(&[("q", filter.q.trim()), ("from", from)]));
    html! {
        section .card aria-labelledby="changed" {
            h2 #changed { "Settings that differ from their defaults" }
            form method="get" action=(CONFIGURATION_PATH) role="search" {
                .fields {
                    (text_field("q", "Part of the path", &filter.q))
                    button type="submit" { "Search" }
                }
            }
            @if matching.is_empty() {
                p { "None of " (format_count(changed.len(), "setting")) " has this text in its path. "
                    a href=(CONFIGURATION_PATH) { "Show all of them" } }
            } @else {
                .table-scroll tabindex="0" { table {
                    caption { (format_count(matching.len(), "setting")) " of " (changed.len())
                        ". Settings of a list, a map or an optional section are listed where they are written." }
                    thead { tr {
                        th scope="col" { "Setting" } th scope="col" { "Value" }
                        th scope="col" { "Default" } th scope="col" { "Written" }
                    } }
                    tbody {
                        @for setting in rows.iter().take(PAGE_ROWS) {
                            tr {
                                th scope="row" { code { (setting.path) } }
                                td { (value_markup(Some(&setting.value))) }
                                td { (value_markup(setting.default.as_ref())) }
                                td { (setting.location.as_deref().unwrap_or("with its section")) }
                            }
                        }
                    }
                } }
                (pager((from > 0).then(|| link("")).as_deref(), next.map(|from| link(&from)).as_deref()))
            }
        }
    }
}

fn value_markup(value: Option<&Value>) -> Markup {
    let text = match value {
        None | Some(Value::Null) => return html! { span .muted { "none" } },
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    let shown = beginning(&text, MAX_VALUE_BYTES);
    html! { code { (shown) @if shown.len() < text.len() { "…" } } }
}

fn whole_section(in_force: &ConfigInForce) -> Markup {
    let text = serde_json::to_string_pretty(&redacted_settings(&in_force.config)).unwrap_or_default();
    let shown = beginning(&text, MAX_TEXT_BYTES);
    html! {
        section .card {
            details {
                summary { "The whole configuration, with its defaults" }
                p .muted { "Hashes of keys, users and queries of URLs, and what looks like a secret are [redacted]." }
                @if shown.len() < text.len() {
                    p { "The first " (MAX_TEXT_BYTES >> 10) " KiB of " (text.len() >> 10) " KiB; the table above has the rest of what was changed." }
                }
                pre tabindex="0" aria-label="The whole configuration" { (shown) }
            }
        }
    }
}

fn beginning(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or(text)
}
