//! The export of one message by OTLP/HTTP or OTLP/gRPC, and what the answer means. A unary call of gRPC is one POST over
//! HTTP/2 with a prefix of five bytes and the status in the trailers, so that one HTTP client serves both.

use super::config::{OtlpProtocol, TracingConfig};
use crate::{
    net::{BinaryClient, BinaryClientSettings, BinaryReply, NetworkConfig},
    values::Secret,
};
use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use std::{fmt, time::Duration};

const HTTP_PATH: &str = "/v1/traces";
const GRPC_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// The longest answer that is read.
const MAX_REPLY_BYTES: usize = 64 << 10;

/// Why an export failed. The text is for the log.
#[derive(Debug)]
pub(super) enum ExportFailure {
    /// A later attempt may succeed.
    Temporary { why: String, retry_after: Option<Duration> },
    /// The receiver does not take this message.
    Permanent(String),
}

impl fmt::Display for ExportFailure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Temporary { why, .. } | Self::Permanent(why) => to.write_str(why),
        }
    }
}

/// The client of one receiver.
#[derive(Debug)]
pub(super) struct OtlpClient {
    client: BinaryClient,
    protocol: OtlpProtocol,
    headers: HeaderMap,
    timeout: Duration,
}

impl OtlpClient {
    /// Creates the client; `header_values` are those of the configured headers, in order. Reads files.
    ///
    /// # Errors
    /// Every unusable value, by its path within the section.
    pub(super) fn build(
        config: &TracingConfig,
        network: &NetworkConfig,
        header_values: &[Secret],
    ) -> Result<Self, Vec<String>> {
        let mut headers = HeaderMap::new();
        for (name, secret) in config.headers.keys().zip(header_values) {
            let invalid = |_| vec![format!("headers.{name}: contains characters that a header cannot contain")];
            let mut value = HeaderValue::from_str(secret.expose()).map_err(invalid)?;
            value.set_sensitive(true);
            if let Ok(name) = name.parse::<HeaderName>() {
                headers.insert(name, value);
            }
        }
        let default_path = match config.protocol {
            OtlpProtocol::Http => {
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
                HTTP_PATH
            }
            OtlpProtocol::Grpc => {
                headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
                headers.insert(header::TE, HeaderValue::from_static("trailers"));
                GRPC_PATH
            }
        };
        let settings = BinaryClientSettings {
            url: &config.endpoint,
            default_path,
            ca: config.ca_file.as_ref(),
            http2_only: config.protocol == OtlpProtocol::Grpc,
        };
        let client = BinaryClient::build(&settings, network)?;
        Ok(Self { client, protocol: config.protocol, headers, timeout: config.timeout.get() })
    }

    /// Sends one message. Returns how many of its spans the receiver rejected.
    ///
    /// # Errors
    /// Why the receiver has not taken it.
    pub(super) async fn send(&self, message: &Bytes) -> Result<u64, ExportFailure> {
        let body = match self.protocol {
            OtlpProtocol::Http => message.clone(),
            OtlpProtocol::Grpc => grpc_frame(message),
        };
        let reply = self.client.post(&self.headers, body, self.timeout, MAX_REPLY_BYTES).await;
        let reply = reply.map_err(|why| ExportFailure::Temporary { why: why.to_string(), retry_after: None })?;
        check_status(&reply)?;
        let message = match self.protocol {
            OtlpProtocol::Http => Some(&*reply.body),
            OtlpProtocol::Grpc => {
                check_grpc_status(&reply)?;
                reply.body.get(5..)
            }
        };
        // An answer that cannot be read says nothing of the spans, which the receiver has.
        let response = message.and_then(|message| ExportTraceServiceResponse::decode(message).ok());
        let partial = response.and_then(|response| response.partial_success);
        Ok(partial.and_then(|partial| u64::try_from(partial.rejected_spans).ok()).unwrap_or_default())
    }
}

/// Prefixes a message with its compression (none) and its length.
fn grpc_frame(message: &Bytes) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    frame.extend_from_slice(message);
    frame.freeze()
}

/// Judges the status of HTTP (OTLP, "Failures").
fn check_status(reply: &BinaryReply) -> Result<(), ExportFailure> {
    let why = || format!("the receiver responded with status {}", reply.status);
    match reply.status {
        200..=299 => Ok(()),
        429 | 502 | 503 | 504 => Err(ExportFailure::Temporary { why: why(), retry_after: reply.retry_after }),
        _ => Err(ExportFailure::Permanent(why())),
    }
}

/// Judges the status of gRPC, which is in the trailers, or in the head of an answer without a message.
fn check_grpc_status(reply: &BinaryReply) -> Result<(), ExportFailure> {
    let status = reply.trailers.get("grpc-status").or_else(|| reply.headers.get("grpc-status"));
    let status: Option<u32> = status.and_then(|status| status.to_str().ok()?.parse().ok());
    let why = || match status {
        Some(status) => format!("the receiver responded with the status {status} of gRPC"),
        None => "the receiver does not respond with gRPC (is the endpoint the one of OTLP/gRPC?)".to_owned(),
    };
    match status {
        Some(0) => Ok(()),
        // Cancelled, deadline exceeded, resource exhausted, aborted, out of range, unavailable, data loss.
        Some(1 | 4 | 8 | 10 | 11 | 14 | 15) => {
            Err(ExportFailure::Temporary { why: why(), retry_after: reply.retry_after })
        }
        _ => Err(ExportFailure::Permanent(why())),
    }
}
