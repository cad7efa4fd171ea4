//! Splitting of streamed answers into messages, for every chunk size.

use super::message_splitter::MessageSplitter;
use http::{HeaderMap, HeaderValue, header};

fn splitter(media: &'static str, most: usize) -> MessageSplitter {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    MessageSplitter::new(&headers, most)
}

fn split(media: &'static str, text: &str, step: usize) -> Vec<String> {
    let mut cutter = splitter(media, 100);
    let mut parts: Vec<String> = text.as_bytes().chunks(step).flat_map(|chunk| cutter.push(chunk).unwrap()).collect();
    parts.extend(cutter.take_rest().unwrap());
    parts
}

#[test]
fn r43_events_and_lines_are_split_correctly_for_every_chunk_size() {
    for step in 1..20 {
        for ends in ["\n", "\r\n", "\r"] {
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
                split("text/event-stream; charset=utf-8", &text.join(ends), step),
                ["a\nb\n", "\u{fc}"],
                "{step} {ends:?}"
            );
        }
        assert_eq!(split("application/x-ndjson", "{\"a\":1}\r\n\n\u{1e}2\n3", step), ["{\"a\":1}", "2", "3"], "{step}");
    }
}

#[test]
fn the_buffered_part_of_a_message_is_bounded() {
    assert!(splitter("application/x-ndjson", 10).push(&[b'x'; 11]).is_err());
    let mut events = splitter("text/event-stream", 10);
    assert!(events.push(b"data: 12\ndata: 12\ndata: 12\ndata: 12\ndata: 12\n").is_err());
    assert!(splitter("text/event-stream", 10).push(&[0xff, b'\n']).is_err());
}
