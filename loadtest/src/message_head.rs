//! Parses the head of an HTTP/1.1 message as far as load and agent need it: where the head ends, and where the body
//! ends.

use anyhow::Context as _;

/// The end of a chunked body.
pub(crate) const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";

#[derive(Clone, Copy)]
pub(crate) struct MessageHead {
    /// Bytes up to the body.
    pub(crate) length: usize,
    /// Bytes of the body. `None` means a chunked body.
    pub(crate) body_length: Option<usize>,
}

impl MessageHead {
    /// Parses the head. Returns `None` until the head is complete.
    pub(crate) fn parse(received: &[u8]) -> anyhow::Result<Option<Self>> {
        let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let head = received.get(..end).unwrap_or_default();
        let length = head.split(|byte| *byte == b'\n').find_map(content_length);
        let body = length.map(|length| std::str::from_utf8(length)?.parse().context("an invalid Content-Length"));
        Ok(Some(Self { length: end + 4, body_length: body.transpose()? }))
    }

    /// Whether `received` contains the complete message that begins with this head.
    pub(crate) fn is_message_complete(&self, received: &[u8]) -> bool {
        match self.body_length {
            Some(body) => received.len() >= self.length + body,
            // Neither side pipelines, so the last chunk ends the received bytes.
            None => received.ends_with(LAST_CHUNK),
        }
    }
}

/// Returns the value of a Content-Length line, or `None` for another field.
fn content_length(line: &[u8]) -> Option<&[u8]> {
    let (name, value) = line.split_at_checked(line.iter().position(|byte| *byte == b':')?)?;
    name.eq_ignore_ascii_case(b"content-length").then(|| value.get(1..).unwrap_or_default().trim_ascii())
}

#[cfg(test)]
mod tests;
