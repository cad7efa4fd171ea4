//! Thousands of streams at once, read on one thread: what they hold in the proxy's memory, and that all of them live.

use super::sent;
use crate::agent::{TICK, now};
use crate::client::PATIENCE;
use crate::figures::percentile;
use crate::load::Target;
use crate::process::Process;
use crate::report::cell;
use anyhow::{Context as _, ensure};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

/// How long all of them are watched, once they are open.
const WATCH: Duration = Duration::from_secs(4);
/// Streams that are opened at once.
const TOGETHER: usize = 50;

/// What many streams took.
pub(super) struct Held {
    /// Memory in KiB: before, and with all of them open.
    resident: [u64; 2],
    streams: u64,
    /// CPU for an event, in microseconds.
    cpu: f64,
    /// The 99th of a hundred delays, in milliseconds.
    p99: f64,
}

impl Held {
    pub(super) fn line(&self, name: &str) -> Vec<String> {
        let [before, with] = self.resident;
        let each = with.saturating_sub(before) as f64 / (self.streams as f64).max(1.0);
        let mebibytes = [before, with].map(|kibibytes| cell(kibibytes as f64 / 1024.0, 1));
        let rest = [cell(each, 1), cell(self.cpu, 1), cell(self.p99, 1)];
        [name.to_owned()].into_iter().chain(mebibytes).chain(rest).collect()
    }
}

/// What the readers saw while they were watched.
#[derive(Default)]
struct Seen {
    watched: bool,
    /// Events of each stream.
    events: Vec<u64>,
    delays: Vec<u64>,
    broken: Option<anyhow::Error>,
}

/// Opens the streams, watches them for a while, and fails if one of them broke or fell silent.
pub(super) fn held(process: &Process, target: &Target, streams: u64) -> anyhow::Result<Held> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let before = process.resident()?;
    let seen = Rc::new(RefCell::new(Seen { events: vec![0; usize::try_from(streams)?], ..Seen::default() }));
    let local = LocalSet::new();
    let (cpu, with) = local.block_on(&runtime, async {
        open(&seen, target).await?;
        // The last of them have had an event, too.
        sleep(TICK * 2).await;
        seen.borrow_mut().watched = true;
        let began = process.cpu()?;
        sleep(WATCH).await;
        seen.borrow_mut().watched = false;
        anyhow::Ok((process.cpu()?.saturating_sub(began), process.resident()?))
    })?;
    let mut seen = seen.take();
    if let Some(why) = seen.broken {
        return Err(why);
    }
    // Every second one, so that several were due in the time of watching; one may have come before it and one after.
    let silent = seen.events.iter().filter(|events| **events < 2).count();
    ensure!(silent == 0, "{silent} of {streams} streams fell silent");
    seen.delays.sort_unstable();
    let cpu = cpu.as_secs_f64() * 1e6 / seen.delays.len() as f64;
    Ok(Held { resident: [before, with], streams, cpu, p99: percentile(&seen.delays, 0.99) / 1e6 })
}

async fn open(seen: &Rc<RefCell<Seen>>, target: &Target) -> anyhow::Result<()> {
    let count = seen.borrow().events.len();
    for number in 0..count {
        let mut stream = timeout(PATIENCE, TcpStream::connect(target.address)).await??;
        stream.write_all(&target.request.bytes).await?;
        let seen = Rc::clone(seen);
        tokio::task::spawn_local(async move {
            if let Err(why) = read(&seen, number, stream).await {
                seen.borrow_mut().broken.get_or_insert(why.context(format!("stream {number}")));
            }
        });
        if number % TOGETHER == 0 {
            // The readers, the proxy and the agent keep up.
            sleep(Duration::from_millis(10)).await;
        }
    }
    Ok(())
}

/// Reads until the runtime ends.
async fn read(seen: &RefCell<Seen>, number: usize, stream: TcpStream) -> anyhow::Result<()> {
    let mut lines = BufReader::with_capacity(512, stream).lines();
    loop {
        let line = timeout(PATIENCE, lines.next_line()).await.context("silence")??.context("the stream ended")?;
        let mut seen = seen.borrow_mut();
        if let (Some(sent), true) = (sent(&line), seen.watched) {
            seen.delays.push(now().saturating_sub(sent));
            if let Some(events) = seen.events.get_mut(number) {
                *events += 1;
            }
        }
    }
}
