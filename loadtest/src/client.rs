//! HTTP/1.1 client of the load: sends a prepared request and reads one response. It parses only what it needs (the
//! status and the end of the response), because it shares its core with the agent.

use crate::head::{END, Head};
use crate::wire::{Caller, HOST, Wire};
use anyhow::{Context as _, bail};
use bytes::Bytes;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a response may take, because a run must end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

const ROOM: usize = 64 * 1024;

/// A request that is serialised once and sent many times.
#[derive(Clone)]
pub(crate) struct Request {
    /// The request as HTTP/1.1 bytes.
    pub(crate) bytes: Bytes,
    /// The request in parts, for HTTP/2.
    pub(crate) head: hyper::Request<()>,
    pub(crate) body: Bytes,
}

impl Request {
    /// Builds a JSON POST. `headers` are complete lines, each with its line end.
    pub(crate) fn post(path: &str, headers: &str, body: &str) -> Self {
        let headers = format!("content-type: application/json\r\n{headers}content-length: {}\r\n", body.len());
        Self::new("POST", path, (&headers, Bytes::copy_from_slice(body.as_bytes())))
    }

    /// Builds a POST of opaque bytes.
    pub(crate) fn bulk(path: &str, length: usize) -> Self {
        let headers = format!("content-type: application/octet-stream\r\ncontent-length: {length}\r\n");
        Self::new("POST", path, (&headers, Bytes::from(vec![b'x'; length])))
    }

    pub(crate) fn get(path: &str) -> Self {
        Self::new("GET", path, ("", Bytes::new()))
    }

    fn new(method: &str, path: &str, (headers, body): (&str, Bytes)) -> Self {
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

pub(crate) struct Connection {
    wire: Wire,
    room: Vec<u8>,
}

impl Connection {
    /// Connects without TLS.
    pub(crate) fn open(address: SocketAddr) -> anyhow::Result<Self> {
        Self::by(Caller::Plain, address)
    }

    /// Connects with this protocol: HTTP/1.1, with or without TLS.
    pub(crate) fn by(protocol: Caller, address: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self { wire: Wire::open(address, protocol, PATIENCE)?, room: vec![0; ROOM] })
    }

    /// Shrinks the buffer to the size of the agent's response, for thousands of connections.
    pub(crate) fn small(mut self) -> Self {
        self.room = vec![0; 2048];
        self
    }

    /// Sends the request, reads a complete response of any length, and returns its status.
    pub(crate) fn call(&mut self, request: &Request) -> anyhow::Result<u16> {
        self.wire.write_all(&request.bytes)?;
        let mut filled = 0;
        let (head, status) = loop {
            filled += self.more(filled)?;
            let received = self.room.get(..filled).unwrap_or_default();
            if let Some(head) = Head::read(received)? {
                break (head, status(received)?);
            }
        };
        match head.body {
            Some(body) => {
                while filled < head.length + body {
                    filled += self.more(0)?;
                }
            }
            None => {
                while !head.ends(self.room.get(..filled).unwrap_or_default()) {
                    // The last chunk may arrive in two reads, so the buffer keeps the last bytes.
                    let carried = filled.min(END.len());
                    self.room.copy_within(filled - carried..filled, 0);
                    filled = carried + self.more(carried)?;
                }
            }
        }
        Ok(status)
    }

    /// Reads into the buffer from `offset` on.
    fn more(&mut self, offset: usize) -> anyhow::Result<usize> {
        let free = self.room.get_mut(offset..).filter(|free| !free.is_empty());
        match self.wire.read(free.context("the response is larger than expected")?)? {
            0 => bail!("the connection was closed before the end of the response"),
            count => Ok(count),
        }
    }

    /// Sends the request, reads a complete response into the buffer, and returns its status, and its head and body.
    pub(crate) fn answer(&mut self, request: &Request) -> anyhow::Result<(u16, &[u8])> {
        self.wire.write_all(&request.bytes)?;
        let mut filled = 0;
        let mut head = None;
        loop {
            filled += self.more(filled)?;
            let received = self.room.get(..filled).unwrap_or_default();
            if head.is_none() {
                head = Head::read(received)?;
            }
            if let Some(head) = &head
                && head.ends(received)
            {
                let received = self.room.get(..filled).unwrap_or_default();
                return Ok((status(received)?, received));
            }
        }
    }

    /// Returns the stream, for a response that is read piece by piece.
    pub(crate) fn into_wire(self) -> Wire {
        self.wire
    }
}

/// Parses the status code of a response.
fn status(response: &[u8]) -> anyhow::Result<u16> {
    let digits = response.split(|byte| *byte == b' ').nth(1).context("the response has no status code")?;
    Ok(std::str::from_utf8(digits)?.parse()?)
}

#[cfg(test)]
mod tests;
