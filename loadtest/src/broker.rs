//! A mosquitto on loopback that can be killed and started again.

use crate::process::{Process, free_address};
use anyhow::Context as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct Broker {
    pub(crate) address: SocketAddr,
    config: PathBuf,
    process: Option<Process>,
}

impl Broker {
    /// Starts one whose files are in `folder`.
    pub(crate) fn start(folder: &Path) -> anyhow::Result<Self> {
        let address = free_address()?;
        let config = folder.join("mosquitto.conf");
        // As root it would leave for a user who may not read the folder.
        let lines = format!(
            "user root\nset_tcp_nodelay true\nmax_queued_messages 0\nmax_inflight_messages 0\nlistener {} 127.0.0.1\nallow_anonymous true\n",
            address.port()
        );
        std::fs::write(&config, lines)?;
        let mut broker = Self { address, config, process: None };
        broker.again()?;
        Ok(broker)
    }

    /// Ends it without a word.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Starts it, with nothing kept.
    pub(crate) fn again(&mut self) -> anyhow::Result<()> {
        self.kill();
        let mut command = Command::new("mosquitto");
        // Servers live in folders that a plain user's PATH leaves out.
        command.env("PATH", format!("{}:/usr/local/sbin:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
        command.arg("-c").arg(&self.config);
        let started = Process::beside(command, self.address);
        self.process = Some(started.context("mosquitto (sudo apt-get install mosquitto)")?);
        Ok(())
    }
}
