//! The card that an A2A agent serves at its own API: callers find only interfaces that lead through the gateway, and the
//! gateway's credentials. A client that followed another interface would send its key for the gateway there.

use crate::{agent::Agent, directory::AgentDirectory, values::percent_decode};
use memchr::memmem;
use serde_json::{Map, Value};

/// The last segments of the paths at which agents serve cards.
const CARD_NAMES: [&str; 5] =
    ["agent-card.json", "agent.json", "extendedAgentCard", "card", "agent-authenticated-extended-card.json"];
/// The members that list interfaces.
const INTERFACE_LISTS: [&str; 2] = ["supportedInterfaces", "additionalInterfaces"];

/// What a card is restricted by.
pub(super) struct CardRestriction<'a> {
    pub(super) directory: &'a AgentDirectory,
    pub(super) agent: &'a Agent,
    /// What callers use in place of the base of the API.
    pub(super) public: &'a str,
}

/// Returns whether an agent serves its card at a path of its API.
pub(super) fn is_card_path(path: &str) -> bool {
    let name = path.split('?').next().unwrap_or_default().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    percent_decode(name).is_some_and(|name| CARD_NAMES.contains(&name.as_str()))
}

impl CardRestriction<'_> {
    /// Returns the document whose URLs are mapped already, if it is a card or a JSON-RPC response with one, with only
    /// the interfaces below the gateway. Otherwise returns `None`. Everything at the path of a card is one.
    pub(super) fn restrict(&self, document: &[u8], is_at_card_path: bool) -> Option<Vec<u8>> {
        let may_be_card = is_at_card_path
            || ["nterfaces\"", "\"skills\"", "\"url\"", "\\u"]
                .iter()
                .any(|text| memmem::find(document, text.as_bytes()).is_some());
        if !may_be_card {
            return None;
        }
        let mut document: Value = serde_json::from_slice(document).ok()?;
        let members = document.as_object_mut()?;
        let is_response = members.contains_key("jsonrpc");
        let card = match members.get_mut("result").filter(|_| is_response) {
            Some(result) => result.as_object_mut()?,
            None => members,
        };
        if !is_at_card_path && !is_card(card) {
            return None;
        }
        self.keep_own_interfaces(card);
        self.directory.set_card_security(self.agent, card);
        // They covered what was replaced.
        card.remove("signatures");
        serde_json::to_vec(&document).ok()
    }

    fn keep_own_interfaces(&self, card: &mut Map<String, Value>) {
        for name in INTERFACE_LISTS {
            match card.get_mut(name) {
                Some(Value::Array(interfaces)) => interfaces.retain(|interface| self.is_own(interface.get("url"))),
                Some(_) => drop(card.remove(name)),
                None => {}
            }
        }
        if !card.contains_key("url") || self.is_own(card.get("url")) {
            return;
        }
        // The preferred interface of 0.3 is elsewhere: another one takes its place, if there is one.
        let other = card.get("additionalInterfaces").and_then(|list| list.get(0)).cloned().unwrap_or_default();
        for (name, value) in [("url", other.get("url")), ("preferredTransport", other.get("transport"))] {
            card.remove(name);
            card.extend(value.map(|value| (name.to_owned(), value.clone())));
        }
    }

    fn is_own(&self, url: Option<&Value>) -> bool {
        let below = url.and_then(Value::as_str).and_then(|url| url.strip_prefix(self.public));
        below.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?', '#']))
    }
}

/// Returns whether an object is a card and not another result of A2A, such as the configuration of a webhook, whose `url`
/// is the caller's.
fn is_card(members: &Map<String, Value>) -> bool {
    let has = |name: &str| members.contains_key(name);
    INTERFACE_LISTS.into_iter().any(has)
        || (has("url") && ["skills", "preferredTransport", "protocolVersion", "capabilities"].into_iter().any(has))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_of_cards_are_found_in_any_spelling() {
        for path in [
            "/.well-known/agent-card.json",
            "/.well-known/agent.json?x=1",
            "/extendedAgentCard",
            "/v1/card/",
            "/v1/c%61rd",
        ] {
            assert!(is_card_path(path), "{path}");
        }
        for path in ["/", "", "/tasks/card.json", "/message:send", "/v1/cards"] {
            assert!(!is_card_path(path), "{path}");
        }
    }

    #[test]
    fn a_webhook_of_a_caller_is_no_card() {
        let is_card = |value: Value| is_card(value.as_object().unwrap());
        assert!(!is_card(json!({"taskId": "1", "url": "https://caller.example/hook", "token": "t"})));
        assert!(!is_card(json!({"id": "1", "status": {"state": "completed"}})));
        assert!(is_card(json!({"supportedInterfaces": []})));
        assert!(is_card(json!({"url": "http://agent", "skills": []})));
    }
}
