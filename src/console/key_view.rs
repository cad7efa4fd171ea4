//! What the pages of callers and the forms of keys share: paths, and how a key is shown.

use super::key_list::KeyRow;
use crate::{
    agent::AuthenticationMethod, config::GatewayConfig, key_management::ManagedKeys, values::percent_encode,
    web_page::time_text,
};
use maud::{Markup, html};
use std::time::SystemTime;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// The path of the list.
pub(super) const CALLERS_PATH: &str = "/console/callers";
/// Returns the keys of a configuration.
pub(super) fn managed_keys(config: &GatewayConfig) -> ManagedKeys {
    config.auth.api_keys.as_ref().map(ManagedKeys::from).unwrap_or_default()
}

/// Returns the path of the page of a caller.
pub(super) fn caller_path(id: &str) -> String {
    format!("{CALLERS_PATH}/{}", percent_encode(id))
}

/// Returns the id of the caller of an API key.
pub(super) fn key_caller_id(name: &str) -> String {
    format!("{}{name}", AuthenticationMethod::ApiKey.caller_id_prefix())
}

/// Returns where a key is.
pub(super) fn place_of(row: &KeyRow) -> Markup {
    html! {
        @match &row.file {
            Some(file) => { code { (file.display()) } }
            None => { "the configuration" }
        }
    }
}

/// Returns the date of a key file; a text that is no date as it is.
pub(super) fn time_of(text: Option<&str>, absent: &'static str) -> Markup {
    let time = text.map(|text| OffsetDateTime::parse(text, &Rfc3339).map_err(|_| text));
    html! {
        @match time {
            None => { (absent) }
            Some(Ok(at)) => { time datetime=(text.unwrap_or_default()) { (time_text(SystemTime::from(at))) } }
            Some(Err(text)) => { (text) }
        }
    }
}
