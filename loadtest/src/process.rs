//! A measured process: started on its own core, read through `/proc`, killed when dropped, and by the kernel where this
//! program ends without dropping it.

mod tree;

use crate::leash::leashed;
use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long a process may take until it accepts connections.
const START: Duration = Duration::from_secs(20);

/// Which core a thread and its children run on; with a single core, everything shares it.
#[derive(Clone, Copy)]
pub(crate) enum Core {
    /// The proxy under measurement has the first core to itself.
    Proxy,
    /// Load and agent share the second.
    Load,
}

impl Core {
    /// Moves the calling thread, and what it starts from now on, to the core.
    pub(crate) fn take(self) -> anyhow::Result<()> {
        let (Some(first), Some(second)) = (cores().first(), cores().get(1)) else {
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

/// The cores that this program was given, before it took one of them.
pub(crate) fn cores() -> &'static [usize] {
    static GIVEN: OnceLock<Vec<usize>> = OnceLock::new();
    GIVEN.get_or_init(|| {
        // A machine that does not tell counts as one with a single core: nothing is pinned.
        let Ok(given) = sched_getaffinity(None) else {
            return Vec::new();
        };
        (0..CpuSet::MAX_CPU).filter(|core| given.is_set(*core)).collect()
    })
}

pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Process {
    /// Starts a program that prints `listening on http://ADDRESS` and waits for that line.
    pub(crate) fn telling(command: Command, core: Core) -> anyhow::Result<Self> {
        core.take()?;
        let spawned = leashed(&command)?.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        Core::Load.take()?;
        let mut child = spawned.with_context(|| format!("{command:?} does not start"))?;
        let output = child.stdout.take().context("a piped stdout")?;
        let mut lines = BufReader::new(output).lines();
        for line in lines.by_ref() {
            let line = line?;
            if let Some(address) = line.strip_prefix("listening on http://") {
                let address = address.trim().parse().with_context(|| line.clone())?;
                // Whatever it says later is read and dropped, so that it never blocks.
                std::thread::spawn(move || lines.for_each(drop));
                return Ok(Self { child, address });
            }
        }
        let _ = child.kill();
        bail!("{command:?} ended without saying where it listens ({})", child.wait()?)
    }

    /// Starts a program that was told where to listen and waits until it does.
    pub(crate) fn told(command: Command, address: SocketAddr) -> anyhow::Result<Self> {
        Self::listening(command, address, Core::Proxy)
    }

    /// The same for one that is not measured; its complaints are dropped.
    pub(crate) fn beside(command: Command, address: SocketAddr) -> anyhow::Result<Self> {
        Self::listening(command, address, Core::Load)
    }

    fn listening(command: Command, address: SocketAddr, core: Core) -> anyhow::Result<Self> {
        let complaints = match core {
            Core::Proxy => Stdio::inherit(),
            Core::Load => Stdio::null(),
        };
        core.take()?;
        let spawned = leashed(&command)?.stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints).spawn();
        Core::Load.take()?;
        let child = spawned.with_context(|| format!("{command:?} does not start"))?;
        let mut process = Self { child, address };
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = process.child.try_wait()? {
                bail!("{command:?} ended ({status})");
            }
            if started.elapsed() > START {
                bail!("{command:?} does not listen on {address}");
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Ok(process)
    }

    /// CPU time that the process and all that it started have used, user and system, all threads.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        tree::cpu(self.child.id())
    }

    /// Resident memory in KiB.
    pub(crate) fn resident(&self) -> anyhow::Result<u64> {
        self.status("VmRSS:")
    }

    /// The most resident memory since [`Self::forget_peak`] (or the start), in KiB.
    pub(crate) fn peak(&self) -> anyhow::Result<u64> {
        self.status("VmHWM:")
    }

    /// From now on the peak counts anew: proc(5), clear_refs.
    pub(crate) fn forget_peak(&self) -> anyhow::Result<()> {
        Ok(fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5")?)
    }

    /// Tells it to end, and waits until it has.
    pub(crate) fn end(mut self) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let told = Instant::now();
        while told.elapsed() < START {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "it ended with {status}");
                return Ok(());
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
        bail!("it was told to end, and has not")
    }

    fn status(&self, name: &'static str) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context(name)?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing left to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that nobody listens on now, for programs that must be told one.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}
