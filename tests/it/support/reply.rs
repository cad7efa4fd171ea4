//! Answers of the gateway, and what must hold of every one of them.

use serde_json::Value;
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Every field that a refusal may carry. Anything else is a leak.
const ALLOWED: &[&str] = &[
    "content-type",
    "content-length",
    "vary",
    "cache-control",
    "x-request-id",
    "date",
    "connection",
    "retry-after",
    "www-authenticate",
    "allow",
    "ratelimit",
    "ratelimit-policy",
    "accept",
];

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|why| panic!("no JSON ({why}): {}", self.text()))
    }

    /// The answer is this fault, in the one shape, and says nothing else.
    #[track_caller]
    pub fn is_fault(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        let error = self.json()["error"].clone();
        assert_eq!(error["code"], code, "{}", self.text());
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{}", self.text());
        assert_eq!(error["request_id"].as_str(), self.header("x-request-id"), "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/json"));
        for (name, _) in &self.headers {
            assert!(ALLOWED.contains(&name.to_ascii_lowercase().as_str()), "the field {name} leaks");
        }
        error
    }

    #[track_caller]
    pub fn is_ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()
    }

    /// None of these words reached the caller.
    #[track_caller]
    pub fn hides(&self, words: &[&str]) {
        let all = format!("{:?} {}", self.headers, self.text());
        for word in words {
            assert!(!all.contains(word), "'{word}' leaks: {all}");
        }
    }
}

/// Sends bytes as they are and reads one answer.
pub async fn raw(to: SocketAddr, bytes: &[u8]) -> Option<Answer> {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let _ = stream.write_all(bytes).await;
    read_answer(&mut stream).await
}

/// Reads one answer; `None` if the connection ends before a head.
pub async fn read_answer(stream: &mut TcpStream) -> Option<Answer> {
    let mut buffer = Vec::new();
    let end = loop {
        if let Some(at) = super::agent::find(&buffer, b"\r\n\r\n") {
            break at;
        }
        let mut part = [0; 8192];
        match tokio::time::timeout(super::PATIENCE, stream.read(&mut part)).await.expect("no answer in time") {
            Ok(0) | Err(_) => return None,
            Ok(count) => buffer.extend_from_slice(&part[..count]),
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let field =
        |line: &str| line.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    let headers: Vec<(String, String)> = lines.filter_map(field).collect();
    let mut answer = Answer { status, headers, body: buffer[end + 4..].to_vec() };
    let length = answer.header("content-length").and_then(|length| length.parse::<usize>().ok());
    while length.is_none_or(|length| answer.body.len() < length) {
        let mut part = [0; 8192];
        match tokio::time::timeout(super::PATIENCE, stream.read(&mut part)).await {
            Ok(Ok(count)) if count > 0 => answer.body.extend_from_slice(&part[..count]),
            _ => break,
        }
    }
    Some(answer)
}
