//! Reads thousands of concurrent streams on one thread, measures the proxy's memory with all of them open, and checks
//! that none breaks.
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

/// How long the streams are measured, once all of them are open.
const WATCH: Duration = Duration::from_secs(4);
/// Streams to open between two short pauses.
const TOGETHER: usize = 50;

/// The cost of many open streams.
pub(super) struct Held {
    /// Resident memory in KiB, before and with all streams open.
    resident: [u64; 2],
    streams: u64,
    /// CPU time of an event, in microseconds.
    cpu: f64,
    /// The 99th percentile of the delays, in milliseconds.
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

/// What the readers receive during the measurement.
#[derive(Default)]
struct Seen {
    watched: bool,
    /// Number of events of each stream.
    events: Vec<u64>,
    delays: Vec<u64>,
    broken: Option<anyhow::Error>,
}

/// Opens the streams, measures for a while, and fails if a stream breaks or falls silent.
pub(super) fn held(process: &Process, target: &Target, streams: u64) -> anyhow::Result<Held> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let before = process.resident()?;
    let readings = Rc::new(RefCell::new(Seen { events: vec![0; usize::try_from(streams)?], ..Seen::default() }));
    let local = LocalSet::new();
    let (cpu, with_streams) = local.block_on(&runtime, async {
        open(&readings, target).await?;
        // By then every stream has had an event.
        sleep(TICK * 2).await;
        readings.borrow_mut().watched = true;
        let cpu_before = process.cpu()?;
        sleep(WATCH).await;
        readings.borrow_mut().watched = false;
        anyhow::Ok((process.cpu()?.saturating_sub(cpu_before), process.resident()?))
    })?;
    let mut readings = readings.take();
    if let Some(error) = readings.broken {
        return Err(error);
    }
    // A stream has one event a second, so that several are due in this time. One may fall before it and one after it.
    let silent = readings.events.iter().filter(|events| **events < 2).count();
    ensure!(silent == 0, "{silent} of {streams} streams fell silent");
    readings.delays.sort_unstable();
    let cpu = cpu.as_secs_f64() * 1e6 / readings.delays.len() as f64;
    let p99 = percentile(&readings.delays, 0.99) / 1e6;
    Ok(Held { resident: [before, with_streams], streams, cpu, p99 })
}

async fn open(readings: &Rc<RefCell<Seen>>, target: &Target) -> anyhow::Result<()> {
    let count = readings.borrow().events.len();
    for number in 0..count {
        let mut stream = timeout(PATIENCE, TcpStream::connect(target.address)).await??;
        stream.write_all(&target.request.bytes).await?;
        let readings = Rc::clone(readings);
        tokio::task::spawn_local(async move {
            if let Err(error) = read(&readings, number, stream).await {
                readings.borrow_mut().broken.get_or_insert(error.context(format!("stream {number}")));
            }
        });
        if number % TOGETHER == 0 {
            // Gives the readers, the proxy and the agent time to keep up.
            sleep(Duration::from_millis(10)).await;
        }
    }
    Ok(())
}

/// Reads a stream until the runtime ends.
async fn read(readings: &RefCell<Seen>, number: usize, stream: TcpStream) -> anyhow::Result<()> {
    let mut lines = BufReader::with_capacity(512, stream).lines();
    loop {
        let line = timeout(PATIENCE, lines.next_line()).await.context("no event arrived")??;
        let line = line.context("the stream ended")?;
        let mut readings = readings.borrow_mut();
        if let (Some(sent), true) = (sent(&line), readings.watched) {
            readings.delays.push(now().saturating_sub(sent));
            if let Some(events) = readings.events.get_mut(number) {
                *events += 1;
            }
        }
    }
}
