//! `did:web`: where a DID publishes its documents, and the keys with which it makes assertions (DID Core §5.3.2).

use crate::{agent::AgentUri, net::Url, values::percent_decode};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Maximum number of verification methods considered in one document.
const MAX_METHODS: usize = 32;

/// Multicodec of a public Ed25519 key.
const ED25519_PREFIX: [u8; 2] = [0xed, 0x01];
/// Length in bytes of an Ed25519 key.
const ED25519_KEY_LEN: usize = 32;

/// Location at which a `did:web` publishes its documents: the origin, and the path below it.
#[derive(Debug)]
pub(super) struct DocumentRoot {
    pub(super) origin: Url,
    pub(super) path: Vec<String>,
}

impl DocumentRoot {
    /// Returns the URL of the DID document.
    pub(super) fn did_document_url(&self) -> Option<Url> {
        let path = if self.path.is_empty() {
            "/.well-known/did.json".to_owned()
        } else {
            format!("/{}/did.json", self.path.join("/"))
        };
        self.origin.join(&path).ok()
    }
}

/// Returns the document root of `did:web:host[%3Aport][:path]*`; `None` for other methods and for invalid hosts.
pub(super) fn document_root(did: &str) -> Option<DocumentRoot> {
    let mut parts = did.strip_prefix("did:web:")?.split(':');
    let host = percent_decode(parts.next()?).filter(|host| !host.contains(['/', '?', '#', '@', '\\']))?;
    // Parsed as the authority of a name, so that hosts have one syntax only.
    let name = AgentUri::parse(&format!("agent://{host}")).ok()?;
    let root = Url::parse(&format!("https://{}/", name.authority().host_and_port()?)).ok()?;
    let path: Vec<String> = parts.map(str::to_owned).collect();
    // The characters of a DID (DID Core §3.1). Percent-encoding is refused: it could hide dots and slashes.
    let is_id_char = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let is_plain = |part: &String| !matches!(&**part, "" | "." | "..") && part.bytes().all(is_id_char);
    path.iter().all(is_plain).then_some(DocumentRoot { origin: root, path })
}

/// Returns whether a document is that of this DID: a document describes its own subject only (DID Core §3.2).
pub(super) fn is_document_of(did: &str, document: &Value) -> bool {
    document.get("id").and_then(Value::as_str) == Some(did)
}

/// Returns the DID's keys for assertions as a JWK Set: those of `assertionMethod`, embedded or by reference, that are
/// the DID's own, in force, and have a `publicKeyJwk` or a `publicKeyMultibase` with an Ed25519 key. A signature may name
/// a key by its DID URL or by its fragment.
pub(super) fn assertion_keys(did: &str, document: &Value) -> Value {
    let list = |name: &str| document.get(name).and_then(Value::as_array).into_iter().flatten().take(MAX_METHODS);
    let absolute_id = |id: &str| if id.starts_with('#') { format!("{did}{id}") } else { id.to_owned() };
    let method_id = |method: &Value| method.get("id").and_then(Value::as_str).map(absolute_id);
    let assertion_methods = list("assertionMethod").filter_map(|method| match method {
        Value::String(id) => {
            list("verificationMethod").find(|candidate| method_id(candidate).as_deref() == Some(&*absolute_id(id)))
        }
        Value::Object(_) => Some(method),
        _ => None,
    });
    let now = OffsetDateTime::now_utc();
    let keys = assertion_methods.filter_map(|method| {
        let id = method_id(method)?;
        let fragment = id.strip_prefix(did)?.strip_prefix('#').filter(|fragment| !fragment.is_empty())?.to_owned();
        let is_own = method.get("controller").and_then(Value::as_str).is_none_or(|controller| controller == did);
        let jwk = public_jwk(method).filter(|_| is_own && is_in_force(method, now))?;
        Some([id, format!("#{fragment}"), fragment].map(|kid| with_key_id(&jwk, kid)))
    });
    json!({"keys": keys.flatten().collect::<Vec<_>>()})
}

/// Returns the public key of a verification method.
fn public_jwk(method: &Value) -> Option<Value> {
    let jwk = method.get("publicKeyJwk").filter(|jwk| jwk.is_object()).cloned();
    jwk.or_else(|| ed25519_from_multibase(method.get("publicKeyMultibase")?.as_str()?))
}

/// Decodes an Ed25519 key in the form of Multikey: `z`, and in base58btc the multicodec 0xed01 and the key.
fn ed25519_from_multibase(text: &str) -> Option<Value> {
    const ALPHABET: &[u8] = b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";
    let digits = text.strip_prefix('z').filter(|digits| digits.len() <= 64)?;
    // A number of base 58 in bytes, the least significant first.
    let mut number = Vec::with_capacity(ED25519_PREFIX.len() + ED25519_KEY_LEN);
    for digit in digits.bytes() {
        let mut carry = ALPHABET.iter().position(|symbol| *symbol == digit)?;
        for byte in &mut number {
            carry += usize::from(*byte) * ALPHABET.len();
            *byte = u8::try_from(carry & 0xff).ok()?;
            carry >>= 8;
        }
        if carry > 0 {
            number.push(u8::try_from(carry).ok()?);
        }
    }
    number.reverse();
    let key = number.strip_prefix(&ED25519_PREFIX).filter(|key| key.len() == ED25519_KEY_LEN)?;
    Some(json!({"kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(key)}))
}

fn with_key_id(jwk: &Value, kid: String) -> Value {
    let mut jwk = jwk.clone();
    if let Value::Object(members) = &mut jwk {
        members.insert("kid".to_owned(), kid.into());
    }
    jwk
}

/// Returns whether a verification method is neither revoked nor expired. A time that cannot be read ends it.
fn is_in_force(method: &Value, now: OffsetDateTime) -> bool {
    ["revoked", "expires"].into_iter().all(|name| match method.get(name) {
        None | Some(Value::Null) => true,
        Some(time) => {
            time.as_str().and_then(|time| OffsetDateTime::parse(time, &Rfc3339).ok()).is_some_and(|time| time > now)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r100_only_keys_for_assertions_of_the_did_itself_that_are_in_force_count() {
        let did = "did:web:a.example";
        let method =
            |id: &str| json!({"id": id, "type": "JsonWebKey", "controller": did, "publicKeyJwk": {"kty": "OKP"}});
        let changed = |id: &str, name: &str, value: Value| {
            let mut method = method(id);
            method[name] = value;
            method
        };
        let document = json!({
            "id": did,
            "verificationMethod": [
                method("did:web:a.example#1"), method("#2"), method("#unused"), method("did:web:b.example#1"),
                changed("#foreign", "controller", json!("did:web:b.example")),
                changed("#revoked", "revoked", json!("2020-01-01T00:00:00Z")),
                changed("#expired", "expires", json!("2020-01-01T00:00:00Z")),
                changed("#unreadable", "expires", json!("soon")),
                changed("#later", "expires", json!("2999-01-01T00:00:00Z")),
                changed("#multibase", "publicKeyJwk", Value::Null),
            ],
            "assertionMethod": [
                "#1", "did:web:a.example#2", "did:web:b.example#1", "#foreign", "#revoked", "#expired", "#unreadable",
                "#later", "#multibase", "#missing", method("#embedded"), 7
            ]
        });
        let keys = assertion_keys(did, &document);
        let ids: Vec<&str> = keys["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap()).collect();
        let names = ["1", "2", "later", "embedded"];
        let expected: Vec<String> =
            names.iter().flat_map(|name| [format!("{did}#{name}"), format!("#{name}"), (*name).to_owned()]).collect();
        assert_eq!(ids, expected);
        assert_eq!(assertion_keys(did, &json!({"id": did})), json!({"keys": []}));
        let many = json!({"assertionMethod": vec![method("#x"); 1_000]});
        assert_eq!(assertion_keys(did, &many)["keys"].as_array().unwrap().len(), 3 * MAX_METHODS);
    }
    #[test]
    fn r63_a_did_leads_to_documents_of_its_own_host_only() {
        let url = |did: &str| document_root(did)?.did_document_url().map(String::from);
        assert_eq!(url("did:web:a.example").unwrap(), "https://a.example/.well-known/did.json");
        assert_eq!(
            url("did:web:a.example%3A8443:team:b-1_c.d").unwrap(),
            "https://a.example:8443/team/b-1_c.d/did.json"
        );
        for path in
            ["/evil.example", "/@evil.example", "\\evil.example", "..", ".", "", "a?b", "a#b", "%2e%2e", "a b", "é"]
        {
            assert_eq!(url(&format!("did:web:a.example:{path}")), None, "{path}");
            assert_eq!(url(&format!("did:web:a.example:{path}:b")), None, "{path}");
        }
        for host in ["", "a@b.example", "a.example%2fb", "a.example%5cb", "a.example%40b"] {
            assert_eq!(url(&format!("did:web:{host}")), None, "{host}");
        }
    }

    #[test]
    fn r100_an_ed25519_key_may_be_a_multikey() {
        // The public key of RFC 8032 §7.1, test 1.
        let key = |text: &str| {
            let method = json!({"id": "#1", "publicKeyMultibase": text});
            let did = "did:web:a.example";
            assertion_keys(did, &json!({"assertionMethod": [method]}))["keys"][0]["x"].as_str().map(str::to_owned)
        };
        let multikey = "z6MktwupdmLXVVqTzCw4i46r4uGyosGXRnR3XjN4Zq7oMMsw";
        assert_eq!(key(multikey).as_deref(), Some("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"));
        let long = format!("z{}", "z".repeat(5_000));
        for text in [
            "",
            "z",
            "u7QE",
            "z0OIl",
            "zDnaeevcpg8QxUXMze2yrMMbyGZkGY6QTGgq1kffE2DbEqpeD",
            multikey.get(1..).unwrap(),
            multikey.get(..40).unwrap(),
            &long,
        ] {
            assert_eq!(key(text), None, "{text}");
        }
    }
}
