//! Where a message ends.

use super::MessageHead;

fn is_complete(response: &str) -> bool {
    let head = MessageHead::parse(response.as_bytes()).unwrap();
    head.is_some_and(|head| head.is_message_complete(response.as_bytes()))
}

#[test]
fn a_response_with_a_length_ends_after_that_many_bytes() {
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
    assert!(is_complete(response));
    assert!(!is_complete(&response[..response.len() - 1]));
    assert!(!is_complete("HTTP/1.1 200 OK\r\nContent-Le"));
}

#[test]
fn a_chunked_response_ends_with_its_last_chunk() {
    assert!(is_complete("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"));
    assert!(!is_complete("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n"));
}
