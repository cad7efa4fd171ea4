//! The response to a request for an agent's API: status and body as they are; without the addresses and cookies of the
//! agent's server.

use super::{
    agent_card::{CardRestriction, is_card_path},
    api_target::AgentApi,
    json_url_rewrite::{RewriteTooLong, rewrite_urls},
    openapi_servers::{is_openapi_media_type, is_openapi_path, restrict_servers},
    public_url::public_url,
    url_mapping::UrlMapping,
};
use crate::{
    fault::{Fault, FaultCode},
    gateway::{
        admission::Admitted,
        call::{CallError, CallResult, CallState},
        exchange::{AgentHeaders, Exchange},
        path_router::ApiRequest,
        response::{CompleteReply, has_content_coding},
        route::is_json_content,
        upstream::BodyPump,
    },
    http_server::{BodyState, ResponseHead, ServeOutcome},
    transport::{BodyPrefix, UpstreamReply, filter_api_reply_headers},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use std::sync::Arc;

/// The longest body that is written with its head, in bytes.
const MAX_WHOLE: usize = 16 << 10;
/// The longest document whose URLs are rewritten at once, in bytes.
const MAX_INLINE_REWRITE: usize = 64 << 10;
/// How many times `api.max_rewrite` a document with the URLs of the gateway may have, which are longer.
const MAX_REWRITE_GROWTH: usize = 2;
/// Header fields whose value is one reference to a resource.
const REFERENCES: [HeaderName; 4] = [
    header::LOCATION,
    header::CONTENT_LOCATION,
    // SDKs of Azure poll there, with the credentials of the call.
    HeaderName::from_static("operation-location"),
    HeaderName::from_static("azure-asyncoperation"),
];

/// Writes the response to an admitted request.
pub(super) struct ApiResponder<'r, 'a> {
    pub(super) exchange: &'r mut Exchange<'a>,
    pub(super) admitted: &'r Admitted,
    pub(super) api: &'r Arc<AgentApi>,
    pub(super) request: &'r ApiRequest,
}

impl ApiResponder<'_, '_> {
    pub(super) async fn respond(mut self, mut reply: UpstreamReply, mut pump: BodyPump) -> CallResult<ServeOutcome> {
        let agent = AgentReplyHead { headers: &reply.headers, api: self.api, request: self.request };
        let mut headers = agent.headers_for_caller(|| public_url(self.exchange, self.request));
        if reply.status.is_server_error() {
            let detail = format!("status {}", reply.status.as_u16());
            let fault = Fault::new(FaultCode::AgentError, "The agent's API reports an error").with_detail(detail);
            self.exchange.call.record_agent_error(Some(fault));
        }
        let kind = self.kind_of(&reply);
        if kind != DocumentKind::Other || self.rewrites(&reply) {
            if has_content_coding(&reply.headers) {
                return Err(kind.unreadable("it is compressed, although the gateway asked for no coding").into());
            }
            let max_bytes = self.api.max_rewrite;
            let BodyPrefix { bytes, complete } = self.read_document(&mut reply, &mut pump, max_bytes).await?;
            if complete {
                let body = self.rewrite(bytes, kind).await?;
                drop_validators(&mut headers);
                return self.respond_whole(reply.status, headers, body).await;
            }
            if kind != DocumentKind::Other {
                return Err(kind.unreadable("it is longer than api.max_rewrite").into());
            }
        }
        if reply.body.length().is_some_and(|length| length <= MAX_WHOLE as u64) {
            // A small body is written with its head.
            let BodyPrefix { bytes, .. } = self.read_document(&mut reply, &mut pump, MAX_WHOLE).await?;
            return self.respond_whole(reply.status, headers, bytes).await;
        }
        self.stream(reply, headers, pump).await
    }

    async fn respond_whole(self, status: StatusCode, headers: HeaderMap, body: Bytes) -> CallResult<ServeOutcome> {
        // RFC 9110 §8.6, §9.3.2: the length of a response without a body would be that of another response.
        let is_head = self.exchange.session.head().method == Method::HEAD;
        if is_head || status == StatusCode::NOT_MODIFIED {
            return self.respond_without_body(status, headers).await;
        }
        let reply = CompleteReply { status, headers, body };
        self.exchange.respond_with_reply(reply, AgentHeaders::of(self.admitted)).await
    }

    async fn respond_without_body(self, status: StatusCode, mut headers: HeaderMap) -> CallResult<ServeOutcome> {
        AgentHeaders::of(self.admitted).add_to(&mut headers, self.exchange.call, None);
        self.exchange.respond(ResponseHead { status, headers }, Bytes::new()).await
    }

    /// Returns what the body is by the path of the request.
    fn kind_of(&self, reply: &UpstreamReply) -> DocumentKind {
        let path = &self.request.path;
        if !reply.status.is_success() || self.exchange.session.head().method == Method::HEAD {
            return DocumentKind::Other;
        }
        let media_type = reply.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
        if self.api.has_card && is_card_path(path) {
            return DocumentKind::Card;
        }
        // A page that shows the document is none.
        let is_page = media_type.starts_with(b"text/html");
        let is_openapi = is_openapi_media_type(media_type) || (is_openapi_path(path) && !is_page);
        if is_openapi { DocumentKind::OpenApi } else { DocumentKind::Other }
    }

    /// Whether the body is a document with URLs to rewrite. A compressed one of an A2A agent could be a card.
    fn rewrites(&self, reply: &UpstreamReply) -> bool {
        !self.api.url_pointers.is_empty()
            && reply.status.is_success()
            && is_json_content(reply.headers.get(header::CONTENT_TYPE))
            && (self.api.has_card || !has_content_coding(&reply.headers))
            // A large document passes as it is: the agent has done its work.
            && reply.body.length().is_none_or(|length| (1..=self.api.max_rewrite as u64).contains(&length))
    }

    /// Returns a document with the URLs for callers. A large one is rewritten on a thread of its own, so that it delays no
    /// other call.
    async fn rewrite(&self, document: Bytes, kind: DocumentKind) -> Result<Bytes, Fault> {
        let (api, public) = (Arc::clone(self.api), public_url(self.exchange, self.request));
        let (config, route) = (Arc::clone(self.exchange.config), Arc::clone(self.admitted.agent_route()));
        let is_large = document.len() > MAX_INLINE_REWRITE;
        let rewrite = move || {
            let mapping = api.url_mapping(&public);
            let max_bytes = api.max_rewrite.saturating_mul(MAX_REWRITE_GROWTH);
            let rewritten = rewrite_urls(&document, &api.url_pointers, max_bytes, &|url| mapping.map_absolute(url));
            let mapped = rewritten.map_err(|RewriteTooLong| kind.too_long())?.map_or(document, Bytes::from);
            if kind == DocumentKind::OpenApi {
                let set_security = |document: &mut serde_json::Map<_, _>| {
                    config.directory.set_openapi_security(&route.agent, document);
                };
                let restricted = restrict_servers(&mapped, &public, set_security)
                    .map_err(|_| kind.unreadable("it is no JSON or YAML"))?;
                return Ok(restricted.map_or(mapped, Bytes::from));
            }
            if !api.has_card || mapped.is_empty() {
                return Ok(mapped);
            }
            let is_card = kind == DocumentKind::Card;
            let restriction = CardRestriction { directory: &config.directory, agent: &route.agent, public: &public };
            match restriction.restrict(&mapped, is_card) {
                Some(restricted) => Ok(Bytes::from(restricted)),
                None if is_card => Err(kind.unreadable("it is not a JSON object")),
                None => Ok(mapped),
            }
        };
        if !is_large {
            return rewrite();
        }
        let rewritten = tokio::task::spawn_blocking(rewrite).await;
        rewritten.map_err(|why| Fault::from(FaultCode::Internal).with_detail(why))?
    }

    /// Reads a body while watching the caller.
    async fn read_document(
        &mut self,
        reply: &mut UpstreamReply,
        pump: &mut BodyPump,
        max_bytes: usize,
    ) -> CallResult<BodyPrefix> {
        let mut document = std::pin::pin!(reply.body.peek(max_bytes));
        loop {
            tokio::select! {
                biased;
                prefix = &mut document => return Ok(prefix?),
                result = pump.advance(self.exchange.session) => result?,
            }
        }
    }

    async fn stream(
        mut self,
        reply: UpstreamReply,
        mut headers: HeaderMap,
        pump: BodyPump,
    ) -> CallResult<ServeOutcome> {
        let status = reply.status;
        let request = self.exchange.session.head();
        let has_body =
            request.method != Method::HEAD && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let is_http11 = request.version == Version::HTTP_11;
        if !has_body {
            return self.respond_without_body(status, headers).await;
        }
        let length = reply.body.length().and_then(|length| usize::try_from(length).ok());
        AgentHeaders::of(self.admitted).add_to(&mut headers, self.exchange.call, length);
        if length.is_none() && is_http11 {
            headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        if pump.is_body_sent() || self.exchange.session.body_state() != BodyState::Pending {
            self.exchange.session.prepare_keep_alive(self.exchange.connection).await;
        } else {
            // The rest of the request body is for the agent, so the connection closes after this call.
            self.exchange.session.close_after_response();
        }
        if self.exchange.start_stream(ResponseHead { status, headers }).await.is_err() {
            return Ok(ServeOutcome::Aborted);
        }
        Ok(self.copy_body(reply, pump).await)
    }

    /// Writes the body as it arrives.
    async fn copy_body(&mut self, mut reply: UpstreamReply, mut pump: BodyPump) -> ServeOutcome {
        let status = reply.status.as_u16();
        loop {
            let chunk = loop {
                tokio::select! {
                    biased;
                    chunk = reply.body.next_chunk() => break chunk,
                    result = pump.advance(self.exchange.session) => match result {
                        Ok(()) => {}
                        Err(CallError::CallerGone) => {
                            self.exchange.call.state = CallState::CallerGone(status);
                            return ServeOutcome::Aborted;
                        }
                        Err(CallError::Fault(fault)) => break Some(Err(fault)),
                    },
                }
            };
            let (bytes, is_last) = match chunk {
                Some(Ok(bytes)) => (bytes, false),
                Some(Err(fault)) => return self.exchange.end_response(status, fault).await,
                None => (Bytes::new(), true),
            };
            self.exchange.call.stats.bytes_out += bytes.len() as u64;
            if self.exchange.session.write_body(bytes, is_last).await.is_err() {
                self.exchange.call.state = CallState::CallerGone(status);
                return ServeOutcome::Aborted;
            }
            if is_last {
                self.exchange.call.state = CallState::Answered(status);
                return ServeOutcome::Complete;
            }
        }
    }
}

/// What the body of a reply is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DocumentKind {
    /// The card of an A2A agent.
    Card,
    /// An OpenAPI document.
    OpenApi,
    /// Anything else.
    Other,
}

impl DocumentKind {
    /// Returns the fault for a document that may lead past the gateway.
    fn unreadable(self, detail: &'static str) -> Fault {
        Fault::new(FaultCode::AgentError, format!("The agent's {} cannot be read", self.name())).with_detail(detail)
    }

    /// Returns the fault for a document in which the gateway's URLs would take too much.
    fn too_long(self) -> Fault {
        let message = format!("The agent's {} is too long with the URLs of the gateway (api.max_rewrite)", self.name());
        Fault::new(FaultCode::AgentError, message).with_setting("agents.rules[].api.max_rewrite")
    }

    fn name(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::OpenApi => "OpenAPI document",
            Self::Other => "answer",
        }
    }
}

/// Removes what describes the agent's own bytes of a body that the gateway changes.
fn drop_validators(headers: &mut HeaderMap) {
    for name in ["content-digest", "repr-digest", "digest", "content-md5", "accept-ranges"] {
        headers.remove(name);
    }
    let strong = headers.get(header::ETAG).filter(|tag| tag.as_bytes().starts_with(b"\""));
    if let Some(weak) = strong.and_then(|tag| HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).ok()) {
        headers.insert(header::ETAG, weak);
    }
}

/// The head of an agent's reply.
pub(super) struct AgentReplyHead<'a> {
    pub(super) headers: &'a HeaderMap,
    pub(super) api: &'a AgentApi,
    pub(super) request: &'a ApiRequest,
}

impl AgentReplyHead<'_> {
    /// Returns the header fields for the caller, with references that lead to the gateway.
    /// `public` returns what callers use in place of the API's base, which few replies need.
    pub(super) fn headers_for_caller(&self, public: impl FnOnce() -> String) -> HeaderMap {
        let Self { headers: agent, api, request: ApiRequest { path, .. } } = *self;
        let mut headers = filter_api_reply_headers(agent, &api.reply_headers);
        if !REFERENCES.iter().chain([&header::LINK]).any(|name| agent.contains_key(name)) {
            return headers;
        }
        let public = public();
        let mapping = api.url_mapping(&public);
        for name in REFERENCES {
            let mapped = agent.get(&name).and_then(|value| mapping.map_reference(value.to_str().ok()?, path));
            if let Some(value) = mapped.and_then(|mapped| HeaderValue::try_from(mapped).ok()) {
                headers.insert(name, value);
            }
        }
        headers.remove(header::LINK);
        for value in agent.get_all(header::LINK) {
            let links = value.to_str().map(|links| map_links(links, &mapping, path)).unwrap_or_default();
            if let Ok(value) = HeaderValue::try_from(links)
                && !value.is_empty()
            {
                headers.append(header::LINK, value);
            }
        }
        headers
    }
}

/// Returns a `Link` field (RFC 8288) with the links that lead below the gateway; the others are left out.
fn map_links(links: &str, mapping: &UrlMapping<'_>, path: &str) -> String {
    let mut mapped = String::with_capacity(links.len() + 64);
    for link in split_links(links) {
        let Some((target, parameters)) = link.trim().strip_prefix('<').and_then(|link| link.split_once('>')) else {
            continue;
        };
        let Some(target) = mapping.map_reference(target, path) else { continue };
        if !mapped.is_empty() {
            mapped.push_str(", ");
        }
        mapped.extend(["<", &target, ">", parameters]);
    }
    mapped
}

/// Splits at commas that are neither in a target nor in a quoted string.
fn split_links(links: &str) -> impl Iterator<Item = &str> {
    let (mut in_target, mut in_quotes, mut is_escaped) = (false, false, false);
    links.split(move |character: char| {
        let was_escaped = std::mem::take(&mut is_escaped);
        match character {
            '\\' if in_quotes && !was_escaped => is_escaped = true,
            '"' if !in_target && !was_escaped => in_quotes = !in_quotes,
            '<' if !in_quotes => in_target = true,
            '>' if !in_quotes => in_target = false,
            _ => {}
        }
        character == ',' && !in_target && !in_quotes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_below_the_base_are_mapped_and_others_left_out() {
        let mapping =
            UrlMapping { origins: &["http://agent".into()], base_path: "", public: "https://gate/agents/a/api" };
        let links = r#"<http://agent/p?a,b>; rel="next", <https://other/x>; rel="prev"; title="a, \" <b>", </first>; rel=first, junk"#;
        let mapped = r#"<https://gate/agents/a/api/p?a,b>; rel="next", <https://gate/agents/a/api/first>; rel=first"#;
        assert_eq!(map_links(links, &mapping, "/"), mapped);
        assert_eq!(map_links("<http://other/>", &mapping, "/"), "");
    }
}
