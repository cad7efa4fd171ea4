//! Request serialisation, and the status of a response.

use super::{PreparedRequest, parse_status};

#[test]
fn the_status_of_a_response_is_parsed() {
    assert_eq!(parse_status(b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n").unwrap(), 429);
}

#[test]
fn the_http1_and_http2_forms_of_a_request_are_equal() {
    let request = PreparedRequest::post_json("/invoke", "x-api-key: k\r\n", "{}");
    let text = String::from_utf8(request.bytes.to_vec()).unwrap();
    assert!(text.starts_with("POST /invoke HTTP/1.1\r\nhost: localhost\r\n"), "{text}");
    assert!(text.ends_with("x-api-key: k\r\ncontent-length: 2\r\n\r\n{}"), "{text}");
    assert_eq!(request.head.headers().get("x-api-key").unwrap(), "k");
    assert_eq!(request.head.uri(), "https://localhost/invoke");
}
