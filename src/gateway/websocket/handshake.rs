//! A caller's WebSocket handshake (RFC 6455 §4.2.1): detection, validation, the origin check and the subprotocols.
//! Writes no response and does not authenticate.

use super::config::CallerWebSocketConfig;
use crate::{
    fault::{Fault, FaultCode, Result},
    gateway::cors::is_origin_of_host,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header, request};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// The subprotocol that a caller offers beside a credential, because browsers require one to be selected.
const GATEPOST_PROTOCOL: &str = "gatepost";

/// Subprotocol prefixes that carry credentials, for scripts in browsers, which cannot set other headers (R98).
const BEARER_PREFIX: &str = "gatepost.bearer.";
const API_KEY_PREFIX: &str = "gatepost.key.";

/// Subprotocol prefixes that carry credentials to other servers: those of OpenAI, Kubernetes and Amazon Bedrock AgentCore.
/// A caller's credential reaches no agent.
const FOREIGN_CREDENTIAL_PREFIXES: [&str; 3] =
    ["openai-insecure-api-key.", "base64url.bearer.authorization.", "base64urlbearerauthorization."];

/// A valid handshake.
pub(in crate::gateway) struct WebSocketHandshake {
    /// `Sec-WebSocket-Accept`.
    pub(in crate::gateway) accept_key: String,
    /// The caller's headers, with the credential in its usual header and the subprotocols that are meant for the agent.
    pub(in crate::gateway) headers: HeaderMap,
    offers_gatepost: bool,
}

/// Returns whether a request is a WebSocket handshake.
pub(in crate::gateway) fn is_websocket_request(head: &request::Parts) -> bool {
    if head.method != Method::GET {
        return false;
    }
    match head.version {
        Version::HTTP_11 => has_token(&head.headers, &header::UPGRADE, "websocket"),
        Version::HTTP_2 => head.headers.contains_key(header::SEC_WEBSOCKET_KEY),
        _ => false,
    }
}

impl WebSocketHandshake {
    /// Validates the handshake.
    ///
    /// # Errors
    /// What is missing or wrong; 426 for another protocol version, 403 for a page of another origin.
    pub(in crate::gateway) fn parse(
        head: &request::Parts,
        config: &CallerWebSocketConfig,
        key_header: Option<&HeaderName>,
    ) -> Result<Self> {
        let refuse = |text: &'static str| Err(Fault::new(FaultCode::InvalidInput, text));
        let headers = &head.headers;
        if head.version == Version::HTTP_2 {
            return refuse("WebSockets are opened over HTTP/1.1 (RFC 8441 is not supported)");
        }
        if !has_token(headers, &header::CONNECTION, "upgrade") {
            return refuse("The handshake has no 'Connection: Upgrade'");
        }
        let has_body = headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0");
        if has_body || headers.contains_key(header::TRANSFER_ENCODING) {
            return refuse("A handshake must not have a body");
        }
        if single_value(headers, &header::SEC_WEBSOCKET_VERSION) != Some("13") {
            let fault =
                Fault::new(FaultCode::InvalidInput, "This WebSocket version is not supported (13 is)").with_status(426);
            return Err(fault.with_header("Sec-WebSocket-Version", "13").with_header("Upgrade", "websocket"));
        }
        let key = single_value(headers, &header::SEC_WEBSOCKET_KEY).unwrap_or_default();
        if !STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16) {
            return refuse("Sec-WebSocket-Key is not one value of 16 bytes in base64");
        }
        check_origin(headers, config)?;
        let mut handshake =
            Self { accept_key: derive_accept_key(key.as_bytes()), headers: headers.clone(), offers_gatepost: false };
        handshake.extract_credentials(key_header)?;
        handshake.join_extensions();
        Ok(handshake)
    }

    /// Makes one field of the offered extensions (RFC 9110 §5.3), which pass only where frames pass as they are.
    fn join_extensions(&mut self) {
        let offered = self.headers.get_all(header::SEC_WEBSOCKET_EXTENSIONS).iter();
        let joined = offered.map(HeaderValue::as_bytes).collect::<Vec<_>>().join(&b", "[..]);
        if let header::Entry::Occupied(mut entry) = self.headers.entry(header::SEC_WEBSOCKET_EXTENSIONS)
            && let Ok(joined) = HeaderValue::from_bytes(&joined)
        {
            entry.insert(joined);
        }
    }

    /// Moves credentials from the subprotocols to their headers, and keeps the subprotocols for the agent.
    fn extract_credentials(&mut self, key_header: Option<&HeaderName>) -> Result<()> {
        let mut offered = Vec::new();
        for value in self.headers.get_all(header::SEC_WEBSOCKET_PROTOCOL) {
            let Ok(text) = value.to_str() else {
                return Err(Fault::new(FaultCode::InvalidInput, "Sec-WebSocket-Protocol is not a list of names"));
            };
            offered.extend(text.split(',').map(|name| name.trim().to_owned()));
        }
        self.headers.remove(header::SEC_WEBSOCKET_PROTOCOL);
        self.offers_gatepost = offered.iter().any(|name| name == GATEPOST_PROTOCOL);
        for name in &offered {
            let credential = match (name.strip_prefix(BEARER_PREFIX), name.strip_prefix(API_KEY_PREFIX)) {
                (Some(token), _) => (header::AUTHORIZATION, format!("Bearer {token}")),
                (_, Some(key)) => (key_header.cloned().unwrap_or(HeaderName::from_static("x-api-key")), key.to_owned()),
                _ => continue,
            };
            if let (false, Ok(value)) = (self.headers.contains_key(&credential.0), HeaderValue::try_from(credential.1))
            {
                self.headers.insert(credential.0, value);
            }
        }
        let is_own = |name: &str| name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(GATEPOST_PROTOCOL));
        offered.retain(|name| !name.is_empty() && !is_own(name) && !is_foreign_credential(name));
        if let Ok(names) = HeaderValue::try_from(offered.join(", "))
            && !offered.is_empty()
        {
            self.headers.insert(header::SEC_WEBSOCKET_PROTOCOL, names);
        }
        Ok(())
    }

    /// Returns the subprotocol of the response: the agent's choice, or `gatepost` if the caller offered it.
    pub(in crate::gateway) fn select_protocol(&self, by_agent: Option<HeaderValue>) -> Option<HeaderValue> {
        by_agent.or_else(|| self.offers_gatepost.then(|| HeaderValue::from_static(GATEPOST_PROTOCOL)))
    }
}

fn is_foreign_credential(subprotocol: &str) -> bool {
    let name = subprotocol.to_ascii_lowercase();
    FOREIGN_CREDENTIAL_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Refuses pages of other origins, which could act as the browser's user (cross-site WebSocket hijacking).
fn check_origin(headers: &HeaderMap, config: &CallerWebSocketConfig) -> Result<()> {
    if !headers.contains_key(header::ORIGIN) || config.allowed_origins.iter().any(|allowed| allowed == "*") {
        return Ok(());
    }
    let refused = || Fault::new(FaultCode::PermissionDenied, "This web page may not open a WebSocket here");
    let origin = single_value(headers, &header::ORIGIN).ok_or_else(refused)?;
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let is_own_host = host.is_some_and(|host| is_origin_of_host(origin, host));
    let allowed = config.allowed_origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin));
    if is_own_host || allowed { Ok(()) } else { Err(refused().with_detail(origin)) }
}

fn single_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).into_iter();
    let first = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(first)
}

fn has_token(headers: &HeaderMap, name: &HeaderName, expected: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|token| token.trim().eq_ignore_ascii_case(expected))
}
