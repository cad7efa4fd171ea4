//! Converts the security schemes of an agent card or descriptor into AIDIP's `authentication`.
//! The conversion never drops a requirement: one that AIDIP cannot express is an error. Of several alternatives, the
//! first that can be expressed is used.

use super::json_members::{get_member, object_array, quote_name, string_array, text_member};
use serde_json::{Map, Value, json};

/// The most scopes of an agent.
const MAX_SCOPES: usize = 100;
/// The most alternatives of one requirement.
const MAX_ALTERNATIVES: usize = 64;

/// One alternative: `authentication.type` and its scopes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AuthAlternative {
    kind: &'static str,
    scopes: Vec<String>,
}

impl AuthAlternative {
    /// Returns what satisfies both requirements.
    ///
    /// # Errors
    /// They are of different kinds, or have too many scopes.
    pub(super) fn combine(mut self, other: Self) -> Result<Self, &'static str> {
        for scope in other.scopes {
            if !self.scopes.contains(&scope) {
                self.scopes.push(scope);
            }
        }
        if self.kind != other.kind {
            return Err("it requires another kind of credential than operations before it");
        }
        if self.scopes.len() > MAX_SCOPES {
            return Err("it requires more than 100 scopes with operations before it");
        }
        Ok(self)
    }

    /// Returns AIDIP's `authentication`.
    pub(super) fn to_json(&self) -> Value {
        if self.scopes.is_empty() {
            json!({"type": self.kind})
        } else {
            json!({"type": self.kind, "scopes": self.scopes})
        }
    }
}

/// Returns the requirement of an operation of an OpenAPI document: its own, or else that of the document.
///
/// # Errors
/// The requirement cannot be expressed.
pub(super) fn requirement_of_operation(
    operation: &Map<String, Value>,
    document: &Map<String, Value>,
) -> Result<Option<AuthAlternative>, String> {
    let components = document.get("components").and_then(Value::as_object);
    let schemes = components.and_then(|components| components.get("securitySchemes")?.as_object());
    let members = if operation.contains_key("security") { operation } else { document };
    required_alternative(members, schemes.unwrap_or(&Map::new()))
}

/// Converts the security requirements of an A2A card, 0.3 or 1.0; `None` where the card requires nothing.
///
/// # Errors
/// The requirements cannot be expressed, or differ between skills.
pub(super) fn authentication_of_card(card: &Map<String, Value>) -> Result<Option<Value>, String> {
    if let Some(Value::Object(legacy)) = card.get("authentication") {
        let names: Vec<&str> = string_array(legacy, "schemes").into_iter().chain(text_member(legacy, "type")).collect();
        // Where the older field requires nothing, the newer ones may.
        if let Some(authentication) = authentication_of_schemes(&names)? {
            return Ok(Some(authentication));
        }
    }
    let schemes = match get_member(card, "securitySchemes") {
        None => &Map::new(),
        Some(Value::Object(schemes)) => schemes,
        Some(_) => return Err("securitySchemes: must be an object".to_owned()),
    };
    let mut required = required_alternative(card, schemes)?;
    if required.is_none() && !schemes.is_empty() {
        // Schemes without requirements: SDKs omit empty requirements, and an attacker could remove them.
        let alternatives = schemes.keys().map(|name| vec![(name.clone(), Vec::new())]).collect();
        required = Some(first_supported(alternatives, schemes)?);
    }
    for (at, skill) in object_array(card, "skills")? {
        let skill_requirement = required_alternative(skill, schemes).map_err(|why| format!("skills[{at}]: {why}"))?;
        if skill_requirement.is_some() && skill_requirement != required {
            return Err(format!(
                "skills[{at}]: requires other credentials than the card (all skills must require the same)"
            ));
        }
    }
    Ok(required.map(|alternative| alternative.to_json()))
}

/// Converts a list of scheme names, as agent:// descriptors and the oldest cards have it.
///
/// # Errors
/// None of the names is supported.
pub(super) fn authentication_of_schemes(names: &[&str]) -> Result<Option<Value>, String> {
    let supported_type = |name: &&str| match name.to_ascii_lowercase().replace(['-', '_', ' '], "").as_str() {
        "oauth2" | "oauth" | "oauth2bearer" | "bearer" | "jwt" | "openidconnect" | "oidc" => Some("oauth2_bearer"),
        "apikey" | "xapikey" => Some("api_key"),
        "mtls" | "mutualtls" => Some("mtls"),
        _ => None,
    };
    let required: Vec<&str> = names.iter().copied().filter(|name| !name.eq_ignore_ascii_case("none")).collect();
    match required.iter().find_map(supported_type) {
        Some(kind) => Ok(Some(json!({"type": kind}))),
        None if required.is_empty() => Ok(None),
        None => Err(format!(
            "authentication.schemes: {} is not supported (use OAuth2, Bearer, ApiKey or mTLS)",
            quote_name(&required.join(", "))
        )),
    }
}

/// Returns the first alternative of a card or skill that can be expressed; `None` where it requires nothing.
fn required_alternative(
    members: &Map<String, Value>,
    schemes: &Map<String, Value>,
) -> Result<Option<AuthAlternative>, String> {
    for name in ["securityRequirements", "security"] {
        if members.get(name).and_then(Value::as_array).is_some_and(|list| list.len() > MAX_ALTERNATIVES) {
            return Err(format!("{name}: has more than {MAX_ALTERNATIVES} alternatives"));
        }
    }
    let newer = object_array(members, "securityRequirements")?;
    let requirements = if newer.is_empty() { object_array(members, "security")? } else { newer };
    let mut alternatives = Vec::new();
    for (_, requirement) in requirements {
        let requirement = get_member(requirement, "schemes").and_then(Value::as_object).unwrap_or(requirement);
        let schemes_of_alternative: Vec<_> =
            requirement.iter().map(|(name, scopes)| (name.clone(), scope_list(scopes))).collect();
        // An empty alternative would make the others optional: it is ignored.
        alternatives.extend((!schemes_of_alternative.is_empty()).then_some(schemes_of_alternative));
    }
    if alternatives.is_empty() { Ok(None) } else { first_supported(alternatives, schemes).map(Some) }
}

/// Reads scopes from an array, or from member `list` as in 1.0.
fn scope_list(scopes: &Value) -> Vec<String> {
    let list = scopes.get("list").unwrap_or(scopes);
    list.as_array().into_iter().flatten().filter_map(Value::as_str).take(MAX_SCOPES + 1).map(str::to_owned).collect()
}

fn first_supported(
    alternatives: Vec<Vec<(String, Vec<String>)>>,
    schemes: &Map<String, Value>,
) -> Result<AuthAlternative, String> {
    let mut reasons = Vec::new();
    for alternative in alternatives {
        match <[_; 1]>::try_from(alternative) {
            Ok([(name, scopes)]) => match authentication_type(schemes.get(&name)) {
                Ok(kind) if kind != "oauth2_bearer" && !scopes.is_empty() => {
                    reasons.push(format!("{} has scopes, which only tokens have", quote_name(&name)));
                }
                Ok(_) if scopes.len() > MAX_SCOPES => {
                    reasons.push(format!("{} has more than {MAX_SCOPES} scopes", quote_name(&name)));
                }
                Ok(kind) => return Ok(AuthAlternative { kind, scopes }),
                Err(why) => reasons.push(format!("{} {why}", quote_name(&name))),
            },
            Err(several) => reasons.push(format!("{} schemes at once are not supported", several.len())),
        }
    }
    reasons.truncate(5);
    Err(format!("security: {} (use API key, bearer token, OAuth 2.0, OpenID Connect or mTLS)", reasons.join("; ")))
}

/// Returns the authentication type of a scheme, in OpenAPI form (0.3) or with the kind as its only member (1.0).
fn authentication_type(scheme: Option<&Value>) -> Result<&'static str, String> {
    let Some(Value::Object(scheme)) = scheme else {
        return Err("is not declared in securitySchemes".to_owned());
    };
    let bearer = |members: &Map<String, Value>| match text_member(members, "scheme") {
        Some(name) if name.eq_ignore_ascii_case("bearer") => Ok("oauth2_bearer"),
        other => Err(format!("is HTTP authentication with an unsupported scheme ({})", other.unwrap_or("none"))),
    };
    match text_member(scheme, "type") {
        Some("apiKey") => return Ok("api_key"),
        Some("http") => return bearer(scheme),
        Some("oauth2" | "openIdConnect") => return Ok("oauth2_bearer"),
        Some("mutualTLS") => return Ok("mtls"),
        Some(other) => return Err(format!("has an unknown type ({})", quote_name(other))),
        None => {}
    }
    if let Some(Value::Object(inner)) = get_member(scheme, "httpAuthSecurityScheme") {
        return bearer(inner);
    }
    let kinds = [
        ("apiKeySecurityScheme", "api_key"),
        ("oauth2SecurityScheme", "oauth2_bearer"),
        ("openIdConnectSecurityScheme", "oauth2_bearer"),
        ("mtlsSecurityScheme", "mtls"),
    ];
    let declared = kinds.into_iter().find(|(name, _)| get_member(scheme, name).is_some());
    declared.map(|(_, kind)| kind).ok_or_else(|| "has an unknown type".to_owned())
}
