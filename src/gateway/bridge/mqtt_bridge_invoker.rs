//! The calls of tasks that arrive on the MQTT bridge: subrequests with the bridge's API key, so that grants, limits and
//! the access log apply as for any caller.

use crate::{
    fault::{Fault, FaultCode, Result},
    gateway::{
        admission::CallerContext,
        gateway_state::{ConfigSnapshot, Gateway},
        header_names::{SESSION_ID, TASK_ID},
        subrequest::{Subrequest, SubrequestSender, SubrequestTrace},
    },
    mqtt_bridge::{self, AgentInvoker},
    trace::{SpanKind, TraceOrigin},
    transport::HeaderMutations,
    values::{Secret, json},
};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

/// Returns the header with the bridge's API key.
pub(super) fn bridge_credentials(config: &ConfigSnapshot, key: &Secret) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let name = config.api_key_header.clone().unwrap_or(HeaderName::from_static("x-api-key"));
    if let Ok(mut value) = HeaderValue::from_str(key.expose()) {
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    headers
}

/// Makes the calls of one bridge, with its API key.
pub(super) struct BridgeInvoker {
    pub(super) gateway: Arc<Gateway>,
    pub(super) key: Secret,
}

#[async_trait::async_trait]
impl AgentInvoker for BridgeInvoker {
    async fn invoke(&self, invocation: mqtt_bridge::TaskInvocation<'_>) -> Result<String> {
        let mqtt_bridge::TaskInvocation {
            agent,
            task_id,
            session_id,
            caller_task_id,
            instruction,
            input,
            trace_context,
        } = invocation;
        let config = self.gateway.config.load_full();
        let mut headers = bridge_credentials(&config, &self.key);
        let call_ids = [(SESSION_ID, session_id), (TASK_ID, caller_task_id)];
        headers.extend(call_ids.into_iter().filter_map(|(name, id)| Some((name, HeaderValue::from_str(id?).ok()?))));
        for (name, value) in trace_context {
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
                // Appended, because a context that is given twice is not valid.
                headers.append(name, value);
            }
        }
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let forwarding =
            HeaderMutations { credential_headers: config.auth.credential_headers(), ..HeaderMutations::default() };
        let context = CallerContext {
            headers: &headers,
            client_certificate: None,
            address,
            is_secure: false,
            forwarded_host: None,
            assumed_key: None,
        };
        // An instruction that equals the name of an operation selects it: gateways send the operation in that field.
        let is_operation = |name: &&str| {
            self.gateway.catalogue.load().get(agent).is_some_and(|route| route.operation_index(name).is_some())
        };
        let operation = instruction.filter(is_operation);
        let instruction = instruction.filter(|_| operation.is_none());
        let subrequest = Subrequest {
            context,
            forwarding,
            call_id: Some(task_id),
            exempt_from_shedding: false,
            agent,
            operation,
            input: Ok(input),
            instruction,
            deadline: None,
            trace: Some(SubrequestTrace {
                origin: TraceOrigin::Request { headers: &headers, from_proxy: false },
                name: "process task",
                kind: SpanKind::Consumer,
            }),
        };
        let sender = SubrequestSender { gateway: &self.gateway, config: &config };
        to_json_text(&sender.fetch(subrequest).await?.body)
    }

    fn records_traces(&self) -> bool {
        self.gateway.config.load().tracer.is_some()
    }

    async fn is_reachable(&self, agent: &str) -> bool {
        let route = self.gateway.catalogue.load().get(agent).cloned();
        match route {
            Some(route) => self.gateway.transport.is_reachable(&route.upstream).await,
            None => false,
        }
    }
}

/// Returns a reply's body as one JSON text: JSON unchanged, other text as a string, an empty body as null.
fn to_json_text(body: &[u8]) -> Result<String> {
    let text = std::str::from_utf8(body);
    let text =
        text.map_err(|why| Fault::new(FaultCode::AgentError, "The agent's answer is not text").with_detail(why))?;
    Ok(match json::parse(body, json::MAX_DEPTH) {
        Ok(_) => text.to_owned(),
        Err(_) if text.trim().is_empty() => "null".to_owned(),
        Err(_) => serde_json::Value::from(text).to_string(),
    })
}
