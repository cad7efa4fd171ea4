//! The gateway under callgrind, which counts the instructions that it executes outside the kernel. The same program
//! doing the same work executes the same number of them on a busy machine and on an idle one, so that a change of a few
//! per cent shows where a clock would not tell it from noise.
//!
//! `tests/it/counts.rs` takes this file in by its path, as it does its neighbours `place` and `record`.

use anyhow::{Context as _, bail, ensure};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// callgrind counts a copy by one repeated instruction as an instruction a byte, where a processor takes thirty bytes at
/// a time. The C library is told never to copy like that, which also makes processors alike.
const COPIES: &str = "glibc.cpu.x86_rep_movsb_threshold=1000000000:glibc.cpu.x86_rep_stosb_threshold=1000000000";

/// callgrind's processor has no instructions for SHA-256, so the digest of a key or a token costs many times what it does
/// on a processor of today. The assembly that makes it has this in its name.
const DIGEST: &str = "sha256_block_data_order";

/// Seconds that one command to callgrind may take.
const PATIENCE: u32 = 60;

/// Instructions.
pub(crate) struct Spent {
    /// Of everything.
    pub(crate) all: u64,
    /// Of SHA-256 alone, in [`Self::all`], too.
    pub(crate) digests: u64,
}

impl Spent {
    /// What a dump tells of one thread.
    fn read(dump: &str) -> anyhow::Result<Self> {
        let total = dump.lines().find_map(|line| line.strip_prefix("totals: ")).context("a dump has totals")?;
        Ok(Self { all: total.trim().parse()?, digests: own(dump, DIGEST) })
    }
}

/// A gateway that runs under callgrind; ended when dropped.
pub(crate) struct Gauge {
    child: Child,
    /// Where it takes calls.
    pub(crate) address: SocketAddr,
    folder: PathBuf,
    dumps: u32,
}

impl Gauge {
    /// Starts `program` with a configuration and waits until it listens. Nothing is counted yet: that makes the start
    /// twice as quick. What callgrind writes goes to `folder`.
    pub(crate) fn start(program: &Path, config: &Path, folder: &Path) -> anyhow::Result<Self> {
        let complaints = folder.join("stderr.log");
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--instr-atstart=no", "--dump-line=no", "--separate-threads=yes"]);
        command.arg(format!("--callgrind-out-file={}", folder.join("counts").display()));
        command.arg(prefix(folder)).arg(program).arg("run").arg("--config").arg(config);
        // One worker, or the number of wake-ups would depend on who is quicker.
        command.env("TOKIO_WORKER_THREADS", "1").env("GLIBC_TUNABLES", COPIES);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&complaints)?);
        let mut child = command.spawn().map_err(|why| missing(&why))?;
        let mut lines = BufReader::new(child.stdout.take().context("a piped stdout")?).lines();
        let said = lines.find_map(|line| line.ok()?.strip_prefix("listening on http://")?.trim().parse().ok());
        let Some(address) = said else {
            let _ = child.kill();
            let ended = child.wait()?;
            bail!("{command:?} ended ({ended}) without listening:\n{}", fs::read_to_string(complaints)?);
        };
        // Whatever it says later is read and dropped, so that it never blocks.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(Self { child, address, folder: folder.to_owned(), dumps: 0 })
    }

    /// Counts from now on.
    pub(crate) fn begin(&self) -> anyhow::Result<()> {
        self.tell("instrumentation on")
    }

    /// What the gateway executes while `work` is done, in its busiest thread: the one worker, in which calls are served
    /// from the first byte to the last. The other threads work by the clock, so that they do the more beside a call the
    /// slower the machine is: they sweep, look at files, and write the access log, at most a hundred times a second.
    pub(crate) fn during(&mut self, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Spent> {
        self.tell("zero")?;
        work()?;
        self.tell("dump")?;
        self.dumps += 1;
        let prefix = format!("counts.{}-", self.dumps);
        let mut most = Spent { all: 0, digests: 0 };
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                let thread = Spent::read(&fs::read_to_string(entry.path())?)?;
                most = if thread.all > most.all { thread } else { most };
            }
        }
        ensure!(most.all > 0, "callgrind wrote no {prefix}* that counts anything");
        Ok(most)
    }

    /// A command to callgrind, carried out when this returns.
    fn tell(&self, command: &str) -> anyhow::Result<()> {
        let mut vgdb = Command::new("vgdb");
        vgdb.arg(prefix(&self.folder)).arg(format!("--pid={}", self.child.id()));
        vgdb.arg(format!("--cmd-time-out={PATIENCE}")).args(command.split(' '));
        let Output { status, stderr, .. } = vgdb.output().map_err(|why| missing(&why))?;
        ensure!(status.success(), "{vgdb:?} failed ({status}): {}", String::from_utf8_lossy(&stderr));
        Ok(())
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing left to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the functions with `name` in their names cost in a dump, without what they call. `fn=(7) name` opens a function,
/// the next time as `fn=(7)`; `cfn=` tells of a call, whose cost stands two lines below.
fn own(dump: &str, name: &str) -> u64 {
    let (mut known, mut inside, mut called, mut sum) = (Vec::new(), false, false, 0);
    for line in dump.lines() {
        if let Some((kind @ ("fn" | "cfn"), function)) = line.split_once("=(") {
            let (number, rest) = function.split_once(')').unwrap_or((function, ""));
            if rest.contains(name) {
                known.push(number);
            }
            if kind == "fn" {
                inside = known.contains(&number);
            }
        } else if line.starts_with("calls=") {
            called = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first))
            && !std::mem::take(&mut called)
            && inside
        {
            sum += line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok()).unwrap_or_default();
        }
    }
    sum
}

/// Where valgrind and `vgdb` meet: beside the other files, and not in a folder that everybody writes to.
fn prefix(folder: &Path) -> String {
    format!("--vgdb-prefix={}", folder.join("vgdb").display())
}

fn missing(why: &std::io::Error) -> anyhow::Error {
    match why.kind() {
        ErrorKind::NotFound => {
            anyhow::anyhow!("the Debian package valgrind is missing (run: sudo apt-get install valgrind)")
        }
        _ => anyhow::anyhow!("valgrind does not start ({why})"),
    }
}
