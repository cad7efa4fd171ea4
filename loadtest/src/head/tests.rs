//! Where an answer ends.

use super::Head;

fn whole(answer: &str) -> bool {
    let head = Head::read(answer.as_bytes()).unwrap();
    head.is_some_and(|head| head.ends(answer.as_bytes()))
}

#[test]
fn an_answer_ends_where_its_length_says() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
    assert!(whole(answer));
    assert!(!whole(&answer[..answer.len() - 1]));
    assert!(!whole("HTTP/1.1 200 OK\r\nContent-Le"));
}

#[test]
fn a_chunked_answer_ends_with_its_last_chunk() {
    assert!(whole("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"));
    assert!(!whole("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n"));
}
