//! Calls that an operator makes from the console: as a caller with its own credential, admitted, limited and logged like
//! every call.

use super::{
    admission::{AdmissionPipeline, CallerContext},
    call_id::new_call_id,
    gateway_state::{ConfigSnapshot, Gateway},
    response::is_message_sequence,
    subrequest::{Subrequest, SubrequestReply, SubrequestSender},
};
use crate::{
    fault::{Fault, FaultCode, Result},
    transport::HeaderMutations,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header};
use std::{net::IpAddr, sync::Arc};
use tokio::sync::mpsc;

/// The formats that an answer may have: one value, or a stream of messages.
const ACCEPT: HeaderValue =
    HeaderValue::from_static("application/json, text/event-stream, application/x-ndjson;q=0.9, */*;q=0.5");

/// The chunks of an answer that wait for the operator's browser.
const MAX_WAITING_CHUNKS: usize = 4;

/// Maximum bytes of an answer; a longer one is cut off.
const MAX_ANSWER_BYTES: u64 = 4 << 20;

/// A call that an operator makes.
pub struct OperatorCall {
    /// The operator's credential; empty for a call without one.
    pub credential: HeaderMap,
    /// The operator's address.
    pub address: IpAddr,
    /// The agent's id, with an optional `@version`.
    pub agent: String,
    /// The operation; `None` leaves the choice to the input.
    pub operation: Option<String>,
    /// The input, one JSON value.
    pub input: Bytes,
}

/// The answer to an operator's call.
pub struct OperatorReply {
    /// The agent's status.
    pub status: u16,
    /// The media type.
    pub media_type: Option<String>,
    /// The body. A fault is the last part of it.
    pub chunks: mpsc::Receiver<Result<Bytes>>,
}

/// Makes a call, and returns its id with the answer or the fault. Must run on the runtime of calls. Dropping the answer
/// cancels the call.
pub async fn call_as_operator(gateway: &Arc<Gateway>, call: OperatorCall) -> (String, Result<OperatorReply>) {
    let id = new_call_id();
    let reply = send_call(gateway, call, &id).await;
    (id, reply)
}

async fn send_call(gateway: &Arc<Gateway>, call: OperatorCall, id: &str) -> Result<OperatorReply> {
    let config = gateway.config.load_full();
    AdmissionPipeline { gateway, config: &config }.charge_address(call.address).await?;
    let subrequest = Subrequest {
        context: CallerContext {
            headers: &call.credential,
            client_certificate: None,
            address: call.address,
            is_secure: false,
            forwarded_host: None,
            assumed_key: None,
        },
        forwarding: HeaderMutations {
            credential_headers: config.auth.credential_headers(),
            ..HeaderMutations::default()
        },
        call_id: Some(id),
        exempt_from_shedding: false,
        agent: &call.agent,
        operation: call.operation.as_deref(),
        input: Ok(call.input),
        instruction: None,
        deadline: None,
        trace: None,
    };
    let sent = SubrequestSender { gateway, config: &config }.send_accepting(subrequest, ACCEPT).await?;
    let (sender, chunks) = mpsc::channel(MAX_WAITING_CHUNKS);
    let status = sent.reply.status.as_u16();
    let media_type = sent.reply.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = media_type.map(str::to_owned);
    if is_message_sequence(&sent.reply.headers) && sent.reply.status.is_success() {
        tokio::spawn(forward_stream(sent, sender));
    } else {
        let reply = read_reply(gateway, &config, sent).await?;
        // The channel has room for it.
        let _ = sender.try_send(Ok(reply));
    }
    Ok(OperatorReply { status, media_type, chunks })
}

async fn read_reply(gateway: &Gateway, config: &ConfigSnapshot, sent: SubrequestReply) -> Result<Bytes> {
    Ok(sent.read_complete(gateway, config).await?.body)
}

/// Passes a stream on, until it ends or nobody reads it.
async fn forward_stream(mut sent: SubrequestReply, sender: mpsc::Sender<Result<Bytes>>) {
    let mut bytes = 0;
    loop {
        let chunk = tokio::select! {
            // Whoever reads has left: the call ends as one whose caller has left.
            () = sender.closed() => return,
            chunk = sent.reply.body.next_chunk() => chunk,
        };
        let Some(chunk) = chunk else { break };
        let end = match chunk {
            Ok(chunk) => {
                bytes += chunk.len() as u64;
                if sender.send(Ok(chunk)).await.is_err() {
                    return;
                }
                if bytes <= MAX_ANSWER_BYTES {
                    continue;
                }
                Fault::new(FaultCode::PayloadTooLarge, "The answer is too long for this page")
            }
            Err(fault) => fault,
        };
        sent.record_failed(end.clone());
        // Whoever reads may have left.
        let _ = sender.send(Err(end)).await;
        return;
    }
    sent.record_completed(bytes);
}
