//! Entry points for fuzzing: messages of callers, and streams that become messages.

use super::{
    caller_message::{parse_result, refusal_format},
    message_splitter::MessageSplitter,
};
use http::{HeaderMap, HeaderValue, header};
use serde::de::IgnoredAny;

const MAX_MESSAGE: usize = 4 << 10;

/// Reads a message, and splits a stream into messages: chunks do not change them, and none is longer than its bound.
pub fn check_messages(data: &[u8]) {
    let Some((options, data)) = data.split_first() else { return };
    let is_stream = options % 2 == 1;
    let whole = split(data, data.len().max(1), is_stream);
    assert_eq!(whole, split(data, usize::from(*options).max(1), is_stream), "the messages depend on the chunks");
    assert!(whole.iter().flatten().all(|message| message.len() <= MAX_MESSAGE), "a message exceeds its bound");
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = refusal_format(text);
        if let Some((_, result)) = parse_result(text) {
            // Not its value: the text may have half of a surrogate pair, which JSON permits (RFC 8259 §8.2).
            assert!(serde_json::from_str::<IgnoredAny>(text).is_ok() && text.contains(result));
        }
    }
}

/// Returns the messages of a body that arrives in chunks of this length; `None` where one is refused.
fn split(data: &[u8], length: usize, is_stream: bool) -> Option<Vec<String>> {
    let mut headers = HeaderMap::new();
    if is_stream {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    }
    let mut splitter = MessageSplitter::new(&headers, MAX_MESSAGE);
    let mut messages = Vec::new();
    for chunk in data.chunks(length) {
        messages.extend(splitter.push(chunk).ok()?);
    }
    messages.extend(splitter.take_rest().ok()?);
    Some(messages)
}
