//! Which latencies and failures the load counts.

use super::{CallTarget, LoadLimit, run_at_rate, saturate};
use crate::http1_client::PreparedRequest;
use crate::message_head::MessageHead;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// A server that answers every request with `status`, and stalls for `stall` before its tenth response on a connection.
fn server(status: &'static str, stall: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || respond(stream, status, stall));
        }
    });
    address
}

fn respond(mut stream: TcpStream, status: &str, stall: Duration) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut received = Vec::new();
    for number in 1.. {
        while !MessageHead::parse(&received).ok()?.is_some_and(|head| head.is_message_complete(&received)) {
            let mut buffer = [0; 1024];
            let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
            received.extend_from_slice(&buffer[..count]);
        }
        if number == 10 {
            std::thread::park_timeout(stall);
        }
        received.clear();
        stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}").as_bytes()).ok()?;
    }
    None
}

fn target(address: SocketAddr) -> CallTarget {
    CallTarget::plain(address, PreparedRequest::post_json("/invoke", "", "{}"))
}

#[test]
fn calls_that_wait_behind_a_stall_count_the_wait_as_latency() {
    let target = target(server("200 OK", Duration::from_millis(200)));
    let result = run_at_rate(&target, 1, 500, Duration::from_millis(400)).unwrap();
    assert_eq!((result.latencies.len(), result.failed), (200, 0));
    // A hundred calls were due during the stall. Half of them waited for more than half of it.
    let waited = result.latencies.iter().filter(|latency| **latency > 90_000_000).count();
    assert!(waited >= 40, "{waited} calls waited");
}

#[test]
fn a_load_ends_after_its_maximum_of_calls() {
    let target = target(server("200 OK", Duration::ZERO));
    let result = saturate(&target, 3, LoadLimit { time: Duration::from_secs(20), max_calls: 50 }, None).unwrap();
    assert_eq!((result.calls, result.failed, result.cpu), (50, 0, None));
}

#[test]
fn a_response_without_status_200_is_a_failed_call() {
    let target = target(server("503 Service Unavailable", Duration::ZERO));
    assert!(target.try_once().is_err());
    let result = saturate(&target, 1, LoadLimit { time: Duration::from_secs(20), max_calls: 5 }, None).unwrap();
    assert_eq!((result.calls, result.failed), (5, 5));
}
