//! Owner keys: whom tasks, stored responses and published documents belong to. The key is the caller's id; for a user of
//! an OAuth client, whose id is the client's, it also names the user.

use super::AuthenticationMethod;
use std::borrow::Cow;

/// Separates the id and the names of the user. In each part it is escaped, so that no name spells another user's key.
const SEPARATOR: char = '|';

/// The beginnings of a user's part in an owner key.
const USER_PARTS: [&str; 2] = ["|client=", "|sub="];

/// Returns the name of an OAuth client as a part of its caller's id. A name that spells a user's owner key, or an escape,
/// is escaped, so that no pattern for a user matches a client; every other name stays as it is.
pub fn client_name_in_id(name: &str) -> Cow<'_, str> {
    let is_confusing = USER_PARTS.iter().chain(&["%7C", "%25"]).any(|part| name.contains(part));
    if is_confusing { escape(name) } else { name.into() }
}

/// Returns the id of a caller as an owner key spells it.
pub fn escaped_caller_id(id: &str) -> Cow<'_, str> {
    if id.starts_with(AuthenticationMethod::Bearer.caller_id_prefix()) { escape(id) } else { id.into() }
}

/// Returns the owner key of a user of the client `id`; `names` are labels and names that tell the user from the client.
pub fn user_owner_key(id: &str, names: &[(&str, &str)]) -> String {
    let mut key = escape(id).into_owned();
    for (label, name) in names {
        key.push(SEPARATOR);
        key.push_str(label);
        key.push('=');
        key.push_str(&escape(name));
    }
    key
}

/// Returns the id of the caller that an owner key belongs to. Only keys of OAuth callers have parts.
pub fn caller_of_owner_key(key: &str) -> Cow<'_, str> {
    if !key.starts_with(AuthenticationMethod::Bearer.caller_id_prefix()) {
        return key.into();
    }
    let id = key.split(SEPARATOR).next().unwrap_or_default();
    if id.contains('%') { id.replace("%7C", "|").replace("%25", "%").into() } else { id.into() }
}

fn escape(part: &str) -> Cow<'_, str> {
    if part.contains(['%', SEPARATOR]) {
        part.replace('%', "%25").replace(SEPARATOR, "%7C").into()
    } else {
        part.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_names_of_clients_and_no_client_and_user_have_one_spelling() {
        let names = ["a", "a|b", "a|sub=b", "a%7Csub=b", "a%257Csub=b", "a|client=c|sub=b", "100%", "100%25", "a%7Cb"];
        let ids: Vec<String> = names.iter().map(|name| format!("oauth:{}", client_name_in_id(name))).collect();
        for (at, id) in ids.iter().enumerate() {
            assert!(!USER_PARTS.iter().any(|part| id.contains(part)), "{id}");
            assert_eq!(ids.iter().position(|other| other == id), Some(at), "{id}");
            assert_eq!(caller_of_owner_key(&user_owner_key(id, &[("sub", "u")])), *id);
        }
        // A subject of Auth0, and a name with a percent sign, keep their spelling.
        assert_eq!(client_name_in_id("auth0|5f7c8ec7"), "auth0|5f7c8ec7");
        assert_eq!(client_name_in_id("100%"), "100%");
    }

    #[test]
    fn the_caller_of_a_key_is_the_client_whatever_its_name_contains() {
        for id in ["oauth:corp/app", "oauth:corp/a|sub=b", "oauth:corp/100%", "oauth:corp/%7C"] {
            for names in [&[][..], &[("sub", "alice")], &[("client", "x|y"), ("sub", "|client=%")]] {
                assert_eq!(caller_of_owner_key(&user_owner_key(id, names)), id);
            }
        }
        // The key of every other caller is its id.
        assert_eq!(caller_of_owner_key("cert:cn:a|sub=b"), "cert:cn:a|sub=b");
    }
}
