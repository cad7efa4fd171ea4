//! HTTP/1.1 client of the load: sends a prepared request and reads one response. It parses only what it needs (the
//! status and the end of the response), because it shares its core with the agent.

use crate::client_stream::{ClientProtocol, ClientStream, HOST};
use crate::message_head::{LAST_CHUNK, MessageHead};
use anyhow::{Context as _, bail};
use bytes::Bytes;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a response may take, because a run must end.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

const BUFFER_SIZE: usize = 64 * 1024;

/// A request that is serialised once and sent many times.
#[derive(Clone)]
pub(crate) struct PreparedRequest {
    /// The request as HTTP/1.1 bytes.
    pub(crate) bytes: Bytes,
    /// The request in parts, for HTTP/2.
    pub(crate) head: hyper::Request<()>,
    pub(crate) body: Bytes,
}

impl PreparedRequest {
    /// Builds a JSON POST. `headers` are complete lines, each with its line end.
    pub(crate) fn post_json(path: &str, headers: &str, body: &str) -> Self {
        let headers = format!("content-type: application/json\r\n{headers}content-length: {}\r\n", body.len());
        Self::new("POST", path, &headers, Bytes::copy_from_slice(body.as_bytes()))
    }

    /// Builds a POST of opaque bytes.
    pub(crate) fn post_bytes(path: &str, length: usize) -> Self {
        let headers = format!("content-type: application/octet-stream\r\ncontent-length: {length}\r\n");
        Self::new("POST", path, &headers, Bytes::from(vec![b'x'; length]))
    }

    pub(crate) fn get(path: &str) -> Self {
        Self::new("GET", path, "", Bytes::new())
    }

    fn new(method: &str, path: &str, headers: &str, body: Bytes) -> Self {
        let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: {HOST}\r\n{headers}\r\n").into_bytes();
        bytes.extend_from_slice(&body);
        let mut head = hyper::Request::builder().method(method).uri(format!("https://{HOST}{path}"));
        for (name, value) in headers.lines().filter_map(|line| line.split_once(": ")) {
            head = head.header(name, value);
        }
        let head = head.body(()).expect("the load's methods, paths and headers are constants and well-formed");
        Self { bytes: Bytes::from(bytes), head, body }
    }
}

pub(crate) struct Http1Connection {
    stream: ClientStream,
    buffer: Vec<u8>,
}

impl Http1Connection {
    /// Connects without TLS.
    pub(crate) fn connect_plain(address: SocketAddr) -> anyhow::Result<Self> {
        Self::connect(ClientProtocol::Http1, address)
    }

    /// Connects with this protocol: HTTP/1.1, with or without TLS.
    pub(crate) fn connect(protocol: ClientProtocol, address: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self { stream: ClientStream::connect(address, protocol, RESPONSE_TIMEOUT)?, buffer: vec![0; BUFFER_SIZE] })
    }

    /// Shrinks the buffer to the size of the agent's response, for thousands of connections.
    pub(crate) fn with_small_buffer(mut self) -> Self {
        self.buffer = vec![0; 2048];
        self
    }

    /// Sends the request, reads a complete response of any length, and returns its status.
    pub(crate) fn call(&mut self, request: &PreparedRequest) -> anyhow::Result<u16> {
        self.stream.write_all(&request.bytes)?;
        let mut filled = 0;
        let (head, status) = loop {
            filled += self.read_more(filled)?;
            let received = self.buffer.get(..filled).unwrap_or_default();
            if let Some(head) = MessageHead::parse(received)? {
                break (head, parse_status(received)?);
            }
        };
        match head.body_length {
            Some(body) => {
                while filled < head.length + body {
                    filled += self.read_more(0)?;
                }
            }
            None => {
                while !head.is_message_complete(self.buffer.get(..filled).unwrap_or_default()) {
                    // The last chunk may arrive in two reads, so the buffer keeps the last bytes.
                    let carried = filled.min(LAST_CHUNK.len());
                    self.buffer.copy_within(filled - carried..filled, 0);
                    filled = carried + self.read_more(carried)?;
                }
            }
        }
        Ok(status)
    }

    /// Reads into the buffer from `offset` on.
    fn read_more(&mut self, offset: usize) -> anyhow::Result<usize> {
        let free = self.buffer.get_mut(offset..).filter(|free| !free.is_empty());
        match self.stream.read(free.context("the response is larger than expected")?)? {
            0 => bail!("the connection was closed before the end of the response"),
            count => Ok(count),
        }
    }

    /// Sends the request, reads a complete response into the buffer, and returns its status, and its head and body.
    pub(crate) fn call_and_read(&mut self, request: &PreparedRequest) -> anyhow::Result<(u16, &[u8])> {
        self.stream.write_all(&request.bytes)?;
        let mut filled = 0;
        let mut head = None;
        loop {
            filled += self.read_more(filled)?;
            let received = self.buffer.get(..filled).unwrap_or_default();
            if head.is_none() {
                head = MessageHead::parse(received)?;
            }
            if let Some(head) = &head
                && head.is_message_complete(received)
            {
                let received = self.buffer.get(..filled).unwrap_or_default();
                return Ok((parse_status(received)?, received));
            }
        }
    }

    /// Returns the stream, for a response that is read piece by piece.
    pub(crate) fn into_stream(self) -> ClientStream {
        self.stream
    }
}

/// Parses the status code of a response.
fn parse_status(response: &[u8]) -> anyhow::Result<u16> {
    let digits = response.split(|byte| *byte == b' ').nth(1).context("the response has no status code")?;
    Ok(std::str::from_utf8(digits)?.parse()?)
}

#[cfg(test)]
mod tests;
