//! What the load charges a server with.

use super::{Target, Until, pace, saturate};
use crate::client::Request;
use crate::head::Head;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// A server that answers `status`, and before its tenth answer on a connection waits for `stall`.
fn server(status: &'static str, stall: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream, status, stall));
        }
    });
    address
}

fn answer(mut stream: TcpStream, status: &str, stall: Duration) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut got = Vec::new();
    for number in 1.. {
        while !Head::read(&got).ok()?.is_some_and(|head| head.ends(&got)) {
            let mut room = [0; 1024];
            let count = stream.read(&mut room).ok().filter(|count| *count > 0)?;
            got.extend_from_slice(&room[..count]);
        }
        if number == 10 {
            std::thread::park_timeout(stall);
        }
        got.clear();
        stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\n{{}}").as_bytes()).ok()?;
    }
    None
}

fn target(address: SocketAddr) -> Target {
    Target::plain(address, Request::post("/invoke", "", "{}"))
}

#[test]
fn a_stall_is_charged_with_the_calls_that_waited_behind_it() {
    let target = target(server("200 OK", Duration::from_millis(200)));
    let seen = pace(&target, 1, 500, Duration::from_millis(400)).unwrap();
    assert_eq!((seen.latencies.len(), seen.failed), (200, 0));
    // A hundred calls were due while it stood still; half of them waited for more than half of that.
    let waited = seen.latencies.iter().filter(|latency| **latency > 90_000_000).count();
    assert!(waited >= 40, "{waited} calls waited");
}

#[test]
fn a_load_ends_after_so_many_calls() {
    let target = target(server("200 OK", Duration::ZERO));
    let seen = saturate(&target, 3, Until { time: Duration::from_secs(20), most: 50 }, None).unwrap();
    assert_eq!((seen.calls, seen.failed, seen.cpu), (50, 0, None));
}

#[test]
fn an_answer_that_is_no_200_is_a_failed_call() {
    let target = target(server("503 Service Unavailable", Duration::ZERO));
    assert!(target.try_once().is_err());
    let seen = saturate(&target, 1, Until { time: Duration::from_secs(20), most: 5 }, None).unwrap();
    assert_eq!((seen.calls, seen.failed), (5, 5));
}
