//! Splitting of streamed replies into messages, for every chunk size.

use super::message_splitter::MessageSplitter;
use http::{HeaderMap, HeaderValue, header};

fn splitter(media: &'static str, max_message: usize) -> MessageSplitter {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    MessageSplitter::new(&headers, max_message)
}

fn split(media: &'static str, text: &str, step: usize) -> Vec<String> {
    let mut splitter = splitter(media, 100);
    let mut parts: Vec<String> = text.as_bytes().chunks(step).flat_map(|chunk| splitter.push(chunk).unwrap()).collect();
    parts.extend(splitter.take_rest().unwrap());
    parts
}

#[test]
fn r43_events_and_lines_are_split_correctly_for_every_chunk_size() {
    for chunk_size in 1..20 {
        for line_end in ["\n", "\r\n", "\r"] {
            let text = [
                ": hi",
                "event: x",
                "data: a",
                "data:b",
                "data",
                "id: 1",
                "",
                "retry: 3",
                "",
                "data: \u{fc}",
                "",
                "data: cut",
            ];
            assert_eq!(
                split("text/event-stream; charset=utf-8", &text.join(line_end), chunk_size),
                ["a\nb\n", "\u{fc}"],
                "{chunk_size} {line_end:?}"
            );
        }
        assert_eq!(
            split("application/x-ndjson", "{\"a\":1}\r\n\n\u{1e}2\n3", chunk_size),
            ["{\"a\":1}", "2", "3"],
            "{chunk_size}"
        );
    }
}

#[test]
fn r43_the_first_event_after_a_byte_order_mark_is_a_message() {
    assert_eq!(split("text/event-stream", "\u{feff}data: 1\n\ndata: 2\n\n", 2), ["1", "2"]);
}

#[test]
fn the_buffered_part_of_a_message_is_bounded() {
    assert!(splitter("application/x-ndjson", 10).push(&[b'x'; 11]).is_err());
    let mut events = splitter("text/event-stream", 10);
    assert!(events.push(b"data: 12\ndata: 12\ndata: 12\ndata: 12\ndata: 12\n").is_err());
    assert!(splitter("text/event-stream", 10).push(b"data: \xff\n\n").is_err());
}
