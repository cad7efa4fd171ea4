//! The head of a message over HTTP/1.1, as far as load and agent look at it: where it ends, and where its body does.

use anyhow::Context as _;

/// How a chunked body ends.
pub(crate) const END: &[u8] = b"\r\n0\r\n\r\n";

#[derive(Clone, Copy)]
pub(crate) struct Head {
    /// Bytes up to the body.
    pub(crate) length: usize,
    /// Bytes of the body; `None` is a chunked one.
    pub(crate) body: Option<usize>,
}

impl Head {
    /// `None` until the head is whole.
    pub(crate) fn read(got: &[u8]) -> anyhow::Result<Option<Self>> {
        let Some(end) = got.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let head = got.get(..end).unwrap_or_default();
        let told = head.split(|byte| *byte == b'\n').find_map(content_length);
        let body = told.map(|told| std::str::from_utf8(told)?.parse().context("a length"));
        Ok(Some(Self { length: end + 4, body: body.transpose()? }))
    }

    /// Whether the message that begins here is whole.
    pub(crate) fn ends(&self, got: &[u8]) -> bool {
        match self.body {
            Some(body) => got.len() >= self.length + body,
            // The last chunk ends the message: nothing is pipelined behind it.
            None => got.ends_with(END),
        }
    }
}

/// What a header line tells, if it is that one.
fn content_length(line: &[u8]) -> Option<&[u8]> {
    let (name, value) = line.split_at_checked(line.iter().position(|byte| *byte == b':')?)?;
    name.eq_ignore_ascii_case(b"content-length").then(|| value.get(1..).unwrap_or_default().trim_ascii())
}

#[cfg(test)]
mod tests;
