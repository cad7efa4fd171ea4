//! A Redis server on loopback, empty and without files.

use crate::process::ServerProcess;
use crate::reserved_port::ReservedPort;
use anyhow::Context as _;
use std::net::SocketAddr;
use std::process::Command;

pub(crate) struct RedisServer {
    pub(crate) address: SocketAddr,
    _process: ServerProcess,
    _port: ReservedPort,
}

impl RedisServer {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let port = ReservedPort::new()?;
        let address = port.address();
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &address.port().to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        let process = ServerProcess::start_unmeasured_on(command, address);
        let process = process.context("redis-server (run: sudo apt-get install redis-server)")?;
        Ok(Self { address, _process: process, _port: port })
    }
}
