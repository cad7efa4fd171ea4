//! The process of the agents over every transport, which can be killed and restarted.

use crate::process::{CpuCore, ServerProcess};
use crate::reserved_port::ReservedPort;
use crate::transport_agents::AgentAddresses;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) struct TransportAgentProcess {
    pub(crate) addresses: AgentAddresses,
    process: Option<ServerProcess>,
    /// The ports that no other program gets while the agents are down.
    _ports: [ReservedPort; 2],
}

impl TransportAgentProcess {
    /// Starts the agents on loopback, with their unix socket in `folder`.
    pub(crate) fn start(folder: &Path, broker: SocketAddr, call_log: Option<PathBuf>) -> anyhow::Result<Self> {
        let unix = folder.join("agent.sock");
        let (http, ws) = (ReservedPort::new()?, ReservedPort::new()?);
        let addresses = AgentAddresses { http: http.address(), ws: ws.address(), unix, broker, call_log };
        let mut agents = Self { addresses, process: None, _ports: [http, ws] };
        agents.restart()?;
        Ok(agents)
    }

    /// Kills the agents, without a clean shutdown.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Kills the agents and starts them again, on the same addresses.
    pub(crate) fn restart(&mut self) -> anyhow::Result<()> {
        self.kill();
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("peers").args(self.addresses.arguments());
        self.process = Some(ServerProcess::start_announcing(command, CpuCore::Load)?);
        Ok(())
    }
}
