//! One HTTP/1.1 connection of the load: a prepared request out, one answer in. It reads only
//! what it must know (status, and where the answer ends), because it shares its core with the
//! agent.

use crate::head::{END, Head};
use crate::wire::{Caller, HOST, Wire};
use anyhow::{Context as _, bail};
use bytes::Bytes;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

/// How long an answer may take; a run must end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

const ROOM: usize = 64 * 1024;

/// A request, prepared once.
#[derive(Clone)]
pub(crate) struct Request {
    /// As it goes over an HTTP/1.1 wire.
    pub(crate) bytes: Bytes,
    /// The same in parts, for HTTP/2.
    pub(crate) head: hyper::Request<()>,
    pub(crate) body: Bytes,
}

impl Request {
    /// A JSON POST. `headers` are whole lines, each with its line end.
    pub(crate) fn post(path: &str, headers: &str, body: &str) -> Self {
        let headers = format!("content-type: application/json\r\n{headers}content-length: {}\r\n", body.len());
        Self::new("POST", path, (&headers, Bytes::copy_from_slice(body.as_bytes())))
    }

    /// A POST of bytes that nobody looks into.
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
        let head = head.body(()).expect("methods, paths and headers of the load are its own, and well-formed");
        Self { bytes: Bytes::from(bytes), head, body }
    }
}

pub(crate) struct Connection {
    wire: Wire,
    room: Vec<u8>,
}

impl Connection {
    /// A plain one.
    pub(crate) fn open(address: SocketAddr) -> anyhow::Result<Self> {
        Self::by(Caller::Plain, address)
    }

    /// As this caller connects; HTTP/2 is spoken elsewhere.
    pub(crate) fn by(caller: Caller, address: SocketAddr) -> anyhow::Result<Self> {
        Ok(Self { wire: Wire::open(address, caller, PATIENCE)?, room: vec![0; ROOM] })
    }

    /// With no more room than an answer of the load needs, for connections by the thousand.
    pub(crate) fn small(mut self) -> Self {
        self.room = vec![0; 2048];
        self
    }

    /// Sends the request, reads one whole answer of any length, and returns its status.
    pub(crate) fn call(&mut self, request: &Request) -> anyhow::Result<u16> {
        self.wire.write_all(&request.bytes)?;
        let mut filled = 0;
        let (head, status) = loop {
            filled += self.more(filled)?;
            let got = self.room.get(..filled).unwrap_or_default();
            if let Some(head) = Head::read(got)? {
                break (head, status(got)?);
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
                    // The end is looked for in the last bytes, which two reads may share.
                    let kept = filled.min(END.len());
                    self.room.copy_within(filled - kept..filled, 0);
                    filled = kept + self.more(kept)?;
                }
            }
        }
        Ok(status)
    }

    /// Reads into the room from `at` on.
    fn more(&mut self, at: usize) -> anyhow::Result<usize> {
        let free = self.room.get_mut(at..).filter(|free| !free.is_empty()).context("an answer larger than expected")?;
        match self.wire.read(free)? {
            0 => bail!("closed inside an answer"),
            count => Ok(count),
        }
    }

    /// Like [`Self::call`], with the answer as it came: head and body.
    pub(crate) fn answer(&mut self, request: &Request) -> anyhow::Result<(u16, &[u8])> {
        self.wire.write_all(&request.bytes)?;
        let mut filled = 0;
        let mut head = None;
        loop {
            filled += self.more(filled)?;
            let got = self.room.get(..filled).unwrap_or_default();
            if head.is_none() {
                head = Head::read(got)?;
            }
            if let Some(head) = &head
                && head.ends(got)
            {
                let got = self.room.get(..filled).unwrap_or_default();
                return Ok((status(got)?, got));
            }
        }
    }

    /// The connection itself, for an answer that is read as it comes.
    pub(crate) fn into_wire(self) -> Wire {
        self.wire
    }
}

/// The number in an answer's first line.
fn status(got: &[u8]) -> anyhow::Result<u16> {
    let digits = got.split(|byte| *byte == b' ').nth(1).context("a status line")?;
    Ok(std::str::from_utf8(digits)?.parse()?)
}

#[cfg(test)]
mod tests;
