//! Responses of the gateway, and checks that every error response must pass.

use serde_json::Value;
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The headers that an error response may have. Any other header is a leak.
const ERROR_HEADERS: &[&str] = &[
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

/// A response of the gateway.
#[derive(Clone, Debug)]
pub struct GatewayResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl GatewayResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|why| panic!("not JSON ({why}): {}", self.text()))
    }

    /// Asserts that the response is this error in AIDIP's format without other headers, and returns the error object.
    #[track_caller]
    pub fn expect_fault(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        let error = self.json()["error"].clone();
        assert_eq!(error["code"], code, "{}", self.text());
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{}", self.text());
        assert_eq!(error["request_id"].as_str(), self.header("x-request-id"), "{}", self.text());
        assert_eq!(self.header("content-type"), Some("application/json"));
        for (name, _) in &self.headers {
            assert!(ERROR_HEADERS.contains(&name.to_ascii_lowercase().as_str()), "the header {name} leaks");
        }
        error
    }

    /// Asserts that the status is 200, and returns the body.
    #[track_caller]
    pub fn expect_ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()
    }

    /// Asserts that none of these words is in the headers or the body.
    #[track_caller]
    pub fn assert_hides(&self, words: &[&str]) {
        let response = format!("{:?} {}", self.headers, self.text());
        for word in words {
            assert!(!response.contains(word), "'{word}' leaks: {response}");
        }
    }
}

/// Sends these bytes on a new connection and reads one response.
pub async fn send_raw(to: SocketAddr, bytes: &[u8]) -> Option<GatewayResponse> {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let _ = stream.write_all(bytes).await;
    read_response(&mut stream).await
}

/// Reads one response. Returns `None` if the connection ends before the end of the head.
pub async fn read_response(stream: &mut TcpStream) -> Option<GatewayResponse> {
    let mut buffer = Vec::new();
    let head_end = loop {
        if let Some(at) = super::agent::find_bytes(&buffer, b"\r\n\r\n") {
            break at;
        }
        let mut chunk = [0; 8192];
        match tokio::time::timeout(super::TEST_TIMEOUT, stream.read(&mut chunk)).await.expect("no response in time") {
            Ok(0) | Err(_) => return None,
            Ok(count) => buffer.extend_from_slice(&chunk[..count]),
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).into_owned();
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let parse_header =
        |line: &str| line.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    let headers: Vec<(String, String)> = lines.filter_map(parse_header).collect();
    let mut response = GatewayResponse { status, headers, body: buffer[head_end + 4..].to_vec() };
    let length = response.header("content-length").and_then(|length| length.parse::<usize>().ok());
    while length.is_none_or(|length| response.body.len() < length) {
        let mut chunk = [0; 8192];
        match tokio::time::timeout(super::TEST_TIMEOUT, stream.read(&mut chunk)).await {
            Ok(Ok(count)) if count > 0 => response.body.extend_from_slice(&chunk[..count]),
            _ => break,
        }
    }
    Some(response)
}
