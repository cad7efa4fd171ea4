//! A server process of a run: started on a CPU core, measured through `/proc`, and killed when dropped. The kernel
//! kills it if this program ends without dropping it.

mod cpu_time;

use crate::parent_death::bound_to_this_process;
use crate::reserved_port::ReservedPort;
use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a process may take to start or to end.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// The core of a thread and its children. On a machine with a single core, everything shares it.
#[derive(Clone, Copy)]
pub(crate) enum CpuCore {
    /// The first core, which the measured proxy has to itself.
    Proxy,
    /// The second core, which load and agent share.
    Load,
}

impl CpuCore {
    /// Pins the calling thread, and what it starts from now on, to the core.
    pub(crate) fn pin_current_thread(self) -> anyhow::Result<()> {
        let (Some(first), Some(second)) = (available_cores().first(), available_cores().get(1)) else {
            return Ok(());
        };
        let mut set = CpuSet::new();
        set.set(match self {
            Self::Proxy => *first,
            Self::Load => *second,
        });
        Ok(sched_setaffinity(None, &set)?)
    }
}

/// Returns the cores that this program may use. The first call must come before the thread is pinned to one of them.
pub(crate) fn available_cores() -> &'static [usize] {
    static AVAILABLE: OnceLock<Vec<usize>> = OnceLock::new();
    AVAILABLE.get_or_init(|| {
        // If the machine does not report its cores, nothing is pinned.
        let Ok(affinity) = sched_getaffinity(None) else {
            return Vec::new();
        };
        (0..CpuSet::MAX_CPU).filter(|core| affinity.is_set(*core)).collect()
    })
}

pub(crate) struct ServerProcess {
    child: Child,
    pub(crate) address: SocketAddr,
    /// The ports that no other program gets before the process has ended.
    _ports: Vec<ReservedPort>,
}

impl ServerProcess {
    /// Starts a program that prints `listening on http://ADDRESS`, and waits for that line.
    pub(crate) fn start_announcing(command: Command, core: CpuCore) -> anyhow::Result<Self> {
        let (process, _) = Self::start_announcing_schemes(command, core, &["http"])?;
        Ok(process)
    }

    /// Starts a program that then prints `listening on https://ADDRESS`, too. Returns that address beside the process.
    pub(crate) fn start_announcing_tls(command: Command, core: CpuCore) -> anyhow::Result<(Self, SocketAddr)> {
        let (process, addresses) = Self::start_announcing_schemes(command, core, &["http", "https"])?;
        let tls = *addresses.last().context("no address")?;
        Ok((process, tls))
    }

    /// Starts a program that prints a line with an address for each scheme, in this order. Returns these addresses.
    fn start_announcing_schemes(
        command: Command,
        core: CpuCore,
        schemes: &[&str],
    ) -> anyhow::Result<(Self, Vec<SocketAddr>)> {
        core.pin_current_thread()?;
        let spawned = bound_to_this_process(&command)?.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        CpuCore::Load.pin_current_thread()?;
        let mut child = spawned.with_context(|| format!("{command:?} does not start"))?;
        let stdout = child.stdout.take().context("stdout is not piped")?;
        let mut lines = BufReader::new(stdout).lines();
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for line in lines.by_ref() {
            let line = line?;
            let scheme = schemes.get(addresses.len()).copied().unwrap_or_default();
            if let Some(address) = line.strip_prefix(&format!("listening on {scheme}://")) {
                addresses.push(address.trim().parse().with_context(|| line.clone())?);
            }
            if let Some(address) = addresses.first().filter(|_| addresses.len() == schemes.len()) {
                // The remaining output is read and discarded, so that the process never blocks on a full pipe.
                std::thread::spawn(move || lines.for_each(drop));
                return Ok((Self { child, address: *address, _ports: Vec::new() }, addresses));
            }
        }
        let _ = child.kill();
        bail!("{command:?} ended without an address ({})", child.wait()?)
    }

    /// Starts a measured program that listens on these ports, and waits until it listens on the first.
    pub(crate) fn start_on(command: Command, ports: Vec<ReservedPort>) -> anyhow::Result<Self> {
        let address = ports.first().context("no port")?.address();
        Self::start_and_connect(command, address, CpuCore::Proxy, ports)
    }

    /// Starts a program that is not measured and listens on `address`, and waits until it does. Discards its stderr.
    pub(crate) fn start_unmeasured_on(command: Command, address: SocketAddr) -> anyhow::Result<Self> {
        Self::start_and_connect(command, address, CpuCore::Load, Vec::new())
    }

    fn start_and_connect(
        command: Command,
        address: SocketAddr,
        core: CpuCore,
        ports: Vec<ReservedPort>,
    ) -> anyhow::Result<Self> {
        let stderr = match core {
            CpuCore::Proxy => Stdio::inherit(),
            CpuCore::Load => Stdio::null(),
        };
        core.pin_current_thread()?;
        let spawned =
            bound_to_this_process(&command)?.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn();
        CpuCore::Load.pin_current_thread()?;
        let child = spawned.with_context(|| format!("{command:?} does not start"))?;
        let mut process = Self { child, address, _ports: ports };
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = process.child.try_wait()? {
                bail!("{command:?} ended ({status})");
            }
            if started.elapsed() > START_TIMEOUT {
                bail!("{command:?} does not listen on {address}");
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Ok(process)
    }

    /// Returns the CPU time of the process and all its descendants: user and system time of all threads.
    pub(crate) fn cpu_time(&self) -> anyhow::Result<Duration> {
        cpu_time::cpu_time_of_tree(self.child.id())
    }

    /// Returns the resident memory in KiB.
    pub(crate) fn resident_memory(&self) -> anyhow::Result<u64> {
        self.read_status_kib("VmRSS:")
    }

    /// Returns the peak of resident memory since [`Self::reset_peak_memory`] or the start, in KiB.
    pub(crate) fn peak_resident_memory(&self) -> anyhow::Result<u64> {
        self.read_status_kib("VmHWM:")
    }

    /// Resets the peak of resident memory, see proc(5), clear_refs.
    pub(crate) fn reset_peak_memory(&self) -> anyhow::Result<()> {
        Ok(fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5")?)
    }

    /// Sends SIGTERM and waits until the process has ended.
    pub(crate) fn terminate(mut self) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let signalled = Instant::now();
        while signalled.elapsed() < START_TIMEOUT {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "the process ended with {status}");
                return Ok(());
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
        bail!("the process has not ended after SIGTERM")
    }

    fn read_status_kib(&self, name: &'static str) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context(name)?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Both fail harmlessly where the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
