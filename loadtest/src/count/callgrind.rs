//! Runs the gateway under callgrind, which counts the instructions that it executes outside the kernel. The same
//! program doing the same work executes the same number of instructions on a busy machine and on an idle one. A change
//! of a few per cent, which a clock cannot tell from noise, is therefore visible.
//!
//! `tests/it/external/counts.rs` includes this file by its path, as it does its neighbours `cases` and `instruction_record`.

use anyhow::{Context as _, bail, ensure};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// callgrind counts a copy by one repeated instruction (`rep movsb`) as one instruction per byte, where a processor
/// moves about thirty bytes at a time. These settings keep the C library from copying that way. They also remove a
/// difference between processors.
const COPY_TUNABLES: &str = "glibc.cpu.x86_rep_movsb_threshold=1000000000:glibc.cpu.x86_rep_stosb_threshold=1000000000";

/// Part of the name of the assembly function that computes SHA-256. The processor that callgrind simulates has no
/// instructions for SHA-256, so the digest of a key or a token costs many times what it costs on a current processor.
const SHA256_SYMBOL: &str = "sha256_block_data_order";

/// Seconds that one command to callgrind may take.
const COMMAND_TIMEOUT_SECONDS: u32 = 60;

/// Numbers of instructions.
pub(crate) struct InstructionTotals {
    /// Everything that was executed.
    pub(crate) total: u64,
    /// The part of [`Self::total`] that computes SHA-256.
    pub(crate) digests: u64,
}

impl InstructionTotals {
    /// Parses a dump of one thread.
    fn parse(dump: &str) -> anyhow::Result<Self> {
        let total = dump.lines().find_map(|line| line.strip_prefix("totals: ")).context("a dump without totals")?;
        Ok(Self { total: total.trim().parse()?, digests: self_cost(dump, SHA256_SYMBOL) })
    }
}

/// A gateway that runs under callgrind. Dropping the session kills the gateway.
pub(crate) struct CallgrindSession {
    child: Child,
    /// The listener for calls.
    pub(crate) address: SocketAddr,
    folder: PathBuf,
    dumps: u32,
}

impl CallgrindSession {
    /// Starts `program` with a configuration and waits until it listens. callgrind writes its files to `folder`.
    /// Counting is off until [`Self::start_counting`], which halves the time of the start.
    pub(crate) fn start(program: &Path, config: &Path, folder: &Path) -> anyhow::Result<Self> {
        let error_log = folder.join("stderr.log");
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--instr-atstart=no", "--dump-line=no", "--separate-threads=yes"]);
        command.arg(format!("--callgrind-out-file={}", folder.join("counts").display()));
        command.arg(vgdb_prefix(folder)).arg(program).arg("run").arg("--config").arg(config);
        // With several workers the number of wake-ups would depend on which of them is faster.
        command.env("TOKIO_WORKER_THREADS", "1").env("GLIBC_TUNABLES", COPY_TUNABLES);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&error_log)?);
        let mut child = command.spawn().map_err(|error| spawn_error(&error))?;
        let mut lines = BufReader::new(child.stdout.take().context("stdout is not piped")?).lines();
        let address = lines.find_map(|line| line.ok()?.strip_prefix("listening on http://")?.trim().parse().ok());
        let Some(address) = address else {
            let _ = child.kill();
            let status = child.wait()?;
            bail!("{command:?} ended ({status}) without listening:\n{}", fs::read_to_string(error_log)?);
        };
        // The remaining output is read and discarded, so that the gateway never blocks on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self { child, address, folder: folder.to_owned(), dumps: 0 })
    }

    /// Turns counting on.
    pub(crate) fn start_counting(&self) -> anyhow::Result<()> {
        self.send_command("instrumentation on")
    }

    /// Returns what the gateway executes during `work`, in its busiest thread: the one worker, which serves calls from
    /// the first byte to the last. The other threads run on timers (they sweep, check files for changes, and write the
    /// access log at most a hundred times a second), so their share per call would grow on a slower machine.
    pub(crate) fn count_during(
        &mut self,
        work: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<InstructionTotals> {
        self.send_command("zero")?;
        work()?;
        self.send_command("dump")?;
        self.dumps += 1;
        let prefix = format!("counts.{}-", self.dumps);
        let mut busiest = InstructionTotals { total: 0, digests: 0 };
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                let thread = InstructionTotals::parse(&fs::read_to_string(entry.path())?)?;
                busiest = if thread.total > busiest.total { thread } else { busiest };
            }
        }
        ensure!(busiest.total > 0, "callgrind wrote no {prefix}* with a count above 0");
        Ok(busiest)
    }

    /// Sends a command to callgrind and waits until it is carried out.
    fn send_command(&self, command: &str) -> anyhow::Result<()> {
        let mut vgdb = Command::new("vgdb");
        vgdb.arg(vgdb_prefix(&self.folder)).arg(format!("--pid={}", self.child.id()));
        vgdb.arg(format!("--cmd-time-out={COMMAND_TIMEOUT_SECONDS}")).args(command.split(' '));
        let Output { status, stderr, .. } = vgdb.output().map_err(|error| spawn_error(&error))?;
        ensure!(status.success(), "{vgdb:?} failed ({status}): {}", String::from_utf8_lossy(&stderr));
        Ok(())
    }
}

impl Drop for CallgrindSession {
    fn drop(&mut self) {
        // Both fail harmlessly where the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sums the self cost of the functions with `name` in their names in a dump: without the functions that they call.
/// `fn=(7) name` opens a function, later as `fn=(7)`. `cfn=` announces a call, whose cost stands two lines below.
fn self_cost(dump: &str, name: &str) -> u64 {
    let (mut matching_ids, mut is_inside, mut is_call_cost, mut sum) = (Vec::new(), false, false, 0);
    for line in dump.lines() {
        if let Some((kind @ ("fn" | "cfn"), function)) = line.split_once("=(") {
            let (id, rest) = function.split_once(')').unwrap_or((function, ""));
            if rest.contains(name) {
                matching_ids.push(id);
            }
            if kind == "fn" {
                is_inside = matching_ids.contains(&id);
            }
        } else if line.starts_with("calls=") {
            is_call_cost = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first))
            && !std::mem::take(&mut is_call_cost)
            && is_inside
        {
            sum += line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok()).unwrap_or_default();
        }
    }
    sum
}

/// The argument that names the pipes between valgrind and `vgdb`: in `folder`, not in a folder that every user can
/// write.
fn vgdb_prefix(folder: &Path) -> String {
    format!("--vgdb-prefix={}", folder.join("vgdb").display())
}

fn spawn_error(error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::NotFound => {
            anyhow::anyhow!("the Debian package valgrind is missing (run: sudo apt-get install valgrind)")
        }
        _ => anyhow::anyhow!("valgrind does not start: {error}"),
    }
}
