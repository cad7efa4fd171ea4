//! Servers of frameworks, which run until they are dropped.

use crate::{
    external::support::python_packages::PythonPackages,
    support::{eventually_within, ports::ReservedPort},
};
use std::{
    net::{Ipv4Addr, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// A server of a framework, on a free port of loopback.
pub struct PeerServer {
    port: ReservedPort,
    process: Child,
    _folder: TempDir,
}

impl PeerServer {
    /// Starts the script `server.py` of the peer, which takes the port.
    pub async fn start_script(peer: &'static str) -> Self {
        Self::start(peer, &["server.py"], |python, port| {
            python.args(["server.py", &port.to_string()]);
        })
        .await
    }

    /// Starts the server that `prepare` completes the command of, in a folder with these files of the peer, and waits until
    /// it accepts connections.
    pub async fn start(peer: &'static str, files: &[&str], prepare: impl FnOnce(&mut Command, u16)) -> Self {
        let (folder, port) = (TempDir::new().unwrap(), ReservedPort::new());
        let packages = tokio::task::spawn_blocking(move || PythonPackages::install(peer)).await.unwrap();
        for file in files {
            let copy = folder.path().join(file);
            std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
            std::fs::copy(packages.source().join(file), copy).unwrap();
        }
        let mut python = packages.python();
        prepare(&mut python, port.number());
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let process = python.current_dir(folder.path()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut process = process.stdin(Stdio::null()).spawn().unwrap();
        eventually_within(Duration::from_secs(60), "the server accepts connections", async || {
            let log = || std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
            assert!(process.try_wait().unwrap().is_none(), "{peer}: {}", log());
            TcpStream::connect((Ipv4Addr::LOCALHOST, port.number())).is_ok()
        })
        .await;
        Self { port, process, _folder: folder }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port.number())
    }
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
