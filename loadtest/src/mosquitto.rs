//! A mosquitto broker on loopback that can be killed and restarted.

use crate::process::ServerProcess;
use crate::reserved_port::ReservedPort;
use anyhow::Context as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct Mosquitto {
    pub(crate) address: SocketAddr,
    config: PathBuf,
    process: Option<ServerProcess>,
    /// The port that no other program gets while the broker is down.
    _port: ReservedPort,
}

impl Mosquitto {
    /// Starts a broker whose files are in `folder`.
    pub(crate) fn start(folder: &Path) -> anyhow::Result<Self> {
        let port = ReservedPort::new()?;
        let address = port.address();
        let config = folder.join("mosquitto.conf");
        // Started as root, mosquitto would switch to a user that cannot read the folder.
        let lines = format!(
            "user root\nset_tcp_nodelay true\nmax_queued_messages 0\nmax_inflight_messages 0\nlistener {} 127.0.0.1\nallow_anonymous true\n",
            address.port()
        );
        std::fs::write(&config, lines)?;
        let mut broker = Self { address, config, process: None, _port: port };
        broker.restart()?;
        Ok(broker)
    }

    /// Kills the broker, without a clean shutdown.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Kills the broker and starts it again. No session or message survives.
    pub(crate) fn restart(&mut self) -> anyhow::Result<()> {
        self.kill();
        let mut command = Command::new("mosquitto");
        // Debian installs servers in folders that are not in an ordinary user's PATH.
        command.env("PATH", format!("{}:/usr/local/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
        command.arg("-c").arg(&self.config);
        let started = ServerProcess::start_unmeasured_on(command, self.address);
        self.process = Some(started.context("mosquitto (run: sudo apt-get install mosquitto)")?);
        Ok(())
    }
}
