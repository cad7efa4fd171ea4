//! Handles one HTTP request: the steps of the crate's documentation, in order.

use super::{
    admission::{AdmissionRecorder as _, AdmissionRequest, CallSource},
    api::handle_api_request,
    call::{Call, CallResult, catch_panic},
    call_handler::{self, InputLocation},
    caller_connection::CallerConnection,
    content_negotiation,
    cors::{redeem_pairing_code, respond_to_preflight},
    directory_handler::handle_directory_request,
    exchange::Exchange,
    gateway_state::{ConfigSnapshot, Gateway},
    openai::handle_openai_request,
    path_router::{self, ApiRequest, RequestKind, TaskTarget},
    pipeline::handle_pipeline,
    tasks::handle_task_request,
    websocket,
};
use crate::{
    directory::is_caller_page_path,
    explain::DecisionStep,
    fault::Fault,
    http_server::{HttpConnection, HttpService, HttpSession, RefusedRequest, ServeOutcome},
    trace::{RequestedServer, SpanKind, TraceOrigin},
};
use http::{HeaderMap, HeaderValue, Method, header};
use std::{num::NonZeroU32, pin::pin, sync::Arc};

impl HttpService for Gateway {
    type Connection = CallerConnection;

    fn open_connection(&self, connection: HttpConnection) -> CallerConnection {
        CallerConnection::new(connection)
    }

    /// Records and logs the call, and writes faults; `handle_request` does the work.
    async fn serve_request(
        self: &Arc<Self>,
        session: &mut HttpSession,
        connection: &Arc<CallerConnection>,
    ) -> ServeOutcome {
        let config = self.config.load_full();
        let forwarded = connection.for_forwarded_request(&session.head().headers);
        let connection = forwarded.as_ref().map_or(connection, |forwarded| forwarded.as_ref().unwrap_or(connection));
        let mut call = Call::start(self, Some(connection.client_address()));
        call.record_connection(connection, session.is_http2());
        if let Some(tracer) = &config.tracer {
            let origin = TraceOrigin::Request {
                headers: &session.head().headers,
                from_proxy: matches!(&forwarded, Ok(Some(_))),
            };
            call.start_trace(tracer, origin, "", SpanKind::Server);
            call.set_traced_server(|| RequestedServer {
                host: connection.requested_host(session.head()).unwrap_or_default().into(),
                is_secure: connection.is_secure(),
            });
        }
        call.record_request_head(session.head());
        let mut exchange = Exchange { gateway: self, config: &config, connection, session, call: &mut call };
        if let Err(fault) = &forwarded {
            // The proxy pays for it, because the client is not known.
            let charged = exchange.admission().charge_address(connection.client_address()).await;
            let fault = charged.err().unwrap_or_else(|| fault.clone());
            return exchange.end_early(fault.into()).await;
        }
        let result = {
            let work = pin!(catch_panic(handle_request(&mut exchange)));
            connection.until_cut_off(work).await.unwrap_or_else(|| Err(self.cut_off_call().into()))
        };
        connection.remember_caller_tier(self, exchange.call.caller(), &exchange.session.head().headers);
        exchange.call.stats.bytes_in = exchange.session.body_bytes_read() as u64;
        match result {
            Ok(outcome) => outcome,
            Err(error) => exchange.end_early(error).await,
        }
    }

    async fn refuse_request(
        self: &Arc<Self>,
        session: &mut HttpSession,
        connection: &Arc<CallerConnection>,
        RefusedRequest { fault, head }: RefusedRequest,
    ) {
        let config = self.config.load_full();
        let mut call = Call::start(self, Some(connection.client_address()));
        call.record_connection(connection, session.is_http2());
        call.record_refused_head(head);
        if let Some(tracer) = &config.tracer {
            // The head is not valid, and neither is the context that it may have.
            let origin = TraceOrigin::Request { headers: &HeaderMap::new(), from_proxy: false };
            call.start_trace(tracer, origin, "", SpanKind::Server);
        }
        let mut exchange = Exchange { gateway: self, config: &config, connection, session, call: &mut call };
        exchange.respond_with_fault(fault, config.error_format).await;
    }
}

/// Returns the kind of a request. The pages for callers are unknown paths unless the configuration turns them on.
fn match_served_request<'a>(config: &ConfigSnapshot, method: &Method, path: &'a str) -> Result<RequestKind<'a>, Fault> {
    match path_router::match_request(method, path) {
        Ok(RequestKind::Directory(request, _)) if request.is_caller_page() && !config.directory.has_caller_pages() => {
            Err(path_router::path_not_found())
        }
        Err(_) if is_caller_page_path(path) && !config.directory.has_caller_pages() => {
            Err(path_router::path_not_found())
        }
        matched => matched,
    }
}

async fn handle_request(exchange: &mut Exchange<'_>) -> CallResult<ServeOutcome> {
    let Exchange { gateway, config, connection, .. } = *exchange;
    let admission = exchange.admission();
    exchange.call.begin_step(DecisionStep::AddressLimit);
    admission.charge_address(connection.client_address()).await?;
    exchange.call.begin_step(DecisionStep::LoadShedding);
    if path_router::requests_event_stream(exchange.session.head().uri.path()) {
        exchange.session.set_header(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
    }
    let head = exchange.session.head();
    exchange.call.exempt_from_shedding = connection.shed_before_authentication(gateway, &head.headers)?;
    exchange.call.begin_step(DecisionStep::Path);
    // At the host of an agent's own API there is nothing else.
    let api_agent = config.api_hosts.agent_at(|| connection.requested_host(head)).map(str::to_owned);
    if let Some(cors) = &config.cors {
        exchange.call.cors_origin = Some(cors.allowed_origin(&head.headers).cloned());
        if let Some(method) = cors.preflight_method(&head.method, &head.headers) {
            if api_agent.is_none() {
                match_served_request(config, &method, head.uri.path())?;
            }
            return Box::pin(respond_to_preflight(exchange, cors)).await;
        }
    }
    // The futures of all requests but calls are boxed, so that the future of a call stays small.
    if let Some(agent) = api_agent {
        let request = ApiRequest::new(&agent, head.uri.path(), true);
        return Box::pin(handle_api_request(exchange, request)).await;
    }
    let invoke = match match_served_request(config, &head.method, head.uri.path())? {
        RequestKind::Invoke(invoke) if websocket::is_websocket_request(head) => {
            let target = invoke.call.into();
            return Box::pin(websocket::upgrade_websocket(exchange, target)).await;
        }
        RequestKind::Invoke(invoke) => {
            if invoke.from_query {
                content_negotiation::refuse_event_stream_request(&head.headers)?;
            }
            invoke
        }
        RequestKind::Api(request) => return Box::pin(handle_api_request(exchange, request)).await,
        RequestKind::OpenAi(request) => return Box::pin(handle_openai_request(exchange, request)).await,
        RequestKind::Pair => return Box::pin(redeem_pairing_code(exchange)).await,
        RequestKind::Directory(request, id) => {
            let id = id.to_owned();
            return Box::pin(handle_directory_request(exchange, request, &id)).await;
        }
        RequestKind::Pipeline => return Box::pin(handle_pipeline(exchange)).await,
        RequestKind::Task(request, target) => {
            let (task, agent) = (target.task.to_owned(), target.agent.map(str::to_owned));
            let target = TaskTarget { task: &task, agent: agent.as_deref() };
            return Box::pin(handle_task_request(exchange, request, target)).await;
        }
    };
    let request = AdmissionRequest {
        source: CallSource::HttpRequest,
        caller: connection.caller_context(&head.headers),
        target: invoke.call,
        query: head.uri.query(),
        calls: NonZeroU32::MIN,
    };
    let location = if invoke.from_query { InputLocation::Query } else { InputLocation::Body };
    let authorized = admission.authorize(exchange.call, &request).await?;
    call_handler::handle_call(exchange, authorized, location).await
}
