//! Waits until the running gateway has read a new key: it looks at its key files once a second, and the next line of a
//! script may be a call with the key.

use super::health_command::reachable_address;
use crate::{
    auth::{self, ApiKeyState},
    config::GatewayConfig,
    key_management::ManagedKeys,
};
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};
use time::OffsetDateTime;

/// How long the gateway may take to read its key files.
const MAX_WAIT: Duration = Duration::from_secs(4);
/// Pause between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How long the admin listener may take for one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// The most bytes that are read of the page of metrics.
const MAX_PAGE_BYTES: u64 = 64 << 20;
/// The metric of the keys that the gateway accepts.
const VALID_KEYS: &str = "gatepost_api_keys{state=\"valid\"} ";

/// Waits until the gateway of this configuration on this machine, if one runs, accepts as many keys as there are, and says
/// so where that takes too long.
#[expect(clippy::disallowed_methods, reason = "the command has nothing else to do")]
pub(super) fn wait_until_in_force(keys: &ManagedKeys, config: Option<&GatewayConfig>) {
    let Some(address) = config.and_then(|config| reachable_address(config.admin.address).ok()) else { return };
    if !address.ip().is_loopback() {
        return;
    }
    let started = Instant::now();
    let expected = count_valid_keys(keys);
    while let Some(accepted) = read_accepted_keys(address) {
        if accepted >= expected {
            return;
        }
        if started.elapsed() > MAX_WAIT {
            eprintln!("the running gateway has not read the key yet (the log and `gatepost doctor` say why)");
            return;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

fn count_valid_keys(keys: &ManagedKeys) -> usize {
    let now = OffsetDateTime::now_utc();
    let of_files = keys.files.iter().filter_map(|file| auth::list_api_keys(file).ok()).flat_map(|listing| listing.keys);
    let all = of_files.chain(keys.in_config.iter().cloned());
    all.filter(|key| matches!(ApiKeyState::of(key, now), ApiKeyState::Valid)).count()
}

/// Returns how many keys the gateway at this admin listener accepts; `None` where none answers.
fn read_accepted_keys(address: SocketAddr) -> Option<usize> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT)).ok()?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut page = Vec::new();
    stream.take(MAX_PAGE_BYTES).read_to_end(&mut page).ok()?;
    parse_accepted_keys(&String::from_utf8_lossy(&page))
}

fn parse_accepted_keys(page: &str) -> Option<usize> {
    page.lines().find_map(|line| line.strip_prefix(VALID_KEYS))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn the_accepted_keys_are_read_from_the_metrics_of_the_gateway() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            let page =
                "HTTP/1.1 200 OK\r\n\r\ngatepost_api_keys{state=\"expired\"} 3\ngatepost_api_keys{state=\"valid\"} 2\n";
            stream.write_all(page.as_bytes()).unwrap();
        });
        assert_eq!(read_accepted_keys(address), Some(2));
        server.join().unwrap();
        assert_eq!(read_accepted_keys(address), None, "no gateway runs");
        assert_eq!(parse_accepted_keys("HTTP/1.1 404 Not Found\r\n\r\n"), None);
    }
}
