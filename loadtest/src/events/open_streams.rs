//! Reads thousands of concurrent streams on one thread, measures the proxy's memory with all of them open, and checks
//! that none breaks.
use crate::agent::{ENDLESS_EVENT_INTERVAL, monotonic_nanos};
use crate::http1_client::RESPONSE_TIMEOUT;
use crate::load::CallTarget;
use crate::process::ServerProcess;
use crate::report::format_number;
use crate::statistics::percentile;
use anyhow::{Context as _, ensure};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

/// How long the streams are measured, once all of them are open.
const MEASUREMENT_TIME: Duration = Duration::from_secs(4);
/// Streams to open between two short pauses.
const STREAMS_PER_BURST: usize = 50;

/// The cost of many open streams.
pub(super) struct OpenStreamsCost {
    /// Resident memory in KiB, before and with all streams open.
    resident: [u64; 2],
    streams: u64,
    /// CPU time of an event, in microseconds.
    cpu: f64,
    /// The 99th percentile of the delays, in milliseconds.
    p99: f64,
}

impl OpenStreamsCost {
    pub(super) fn table_row(&self, name: &str) -> Vec<String> {
        let [before, with] = self.resident;
        let each = with.saturating_sub(before) as f64 / (self.streams as f64).max(1.0);
        let mebibytes = [before, with].map(|kibibytes| format_number(kibibytes as f64 / 1024.0, 1));
        let rest = [format_number(each, 1), format_number(self.cpu, 1), format_number(self.p99, 1)];
        [name.to_owned()].into_iter().chain(mebibytes).chain(rest).collect()
    }
}

/// What the readers receive during the measurement.
#[derive(Default)]
struct StreamReadings {
    is_measuring: bool,
    /// Number of events of each stream.
    events: Vec<u64>,
    delays: Vec<u64>,
    error: Option<anyhow::Error>,
}

/// Opens the streams, measures for a while, and fails if a stream breaks or falls silent.
pub(super) fn measure_open_streams(
    process: &ServerProcess,
    target: &CallTarget,
    streams: u64,
) -> anyhow::Result<OpenStreamsCost> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let before = process.resident_memory()?;
    let readings = Rc::new(RefCell::new(StreamReadings {
        events: vec![0; usize::try_from(streams)?],
        ..StreamReadings::default()
    }));
    let local = LocalSet::new();
    let (cpu, with_streams) = local.block_on(&runtime, async {
        open_streams(&readings, target).await?;
        // By then every stream has had an event.
        sleep(ENDLESS_EVENT_INTERVAL * 2).await;
        readings.borrow_mut().is_measuring = true;
        let cpu_before = process.cpu_time()?;
        sleep(MEASUREMENT_TIME).await;
        readings.borrow_mut().is_measuring = false;
        anyhow::Ok((process.cpu_time()?.saturating_sub(cpu_before), process.resident_memory()?))
    })?;
    let mut readings = readings.take();
    if let Some(error) = readings.error {
        return Err(error);
    }
    // A stream has one event a second, so that several are due in this time. One may fall before it and one after it.
    let silent = readings.events.iter().filter(|events| **events < 2).count();
    ensure!(silent == 0, "{silent} of {streams} streams fell silent");
    readings.delays.sort_unstable();
    let cpu = cpu.as_secs_f64() * 1e6 / readings.delays.len() as f64;
    let p99 = percentile(&readings.delays, 0.99) / 1e6;
    Ok(OpenStreamsCost { resident: [before, with_streams], streams, cpu, p99 })
}

async fn open_streams(readings: &Rc<RefCell<StreamReadings>>, target: &CallTarget) -> anyhow::Result<()> {
    let count = readings.borrow().events.len();
    for number in 0..count {
        let mut stream = timeout(RESPONSE_TIMEOUT, TcpStream::connect(target.address)).await??;
        stream.write_all(&target.request.bytes).await?;
        let readings = Rc::clone(readings);
        tokio::task::spawn_local(async move {
            if let Err(error) = read_stream(&readings, number, stream).await {
                readings.borrow_mut().error.get_or_insert(error.context(format!("stream {number}")));
            }
        });
        if number % STREAMS_PER_BURST == 0 {
            // Gives the readers, the proxy and the agent time to keep up.
            sleep(Duration::from_millis(10)).await;
        }
    }
    Ok(())
}

/// Reads a stream until the runtime ends.
async fn read_stream(readings: &RefCell<StreamReadings>, number: usize, stream: TcpStream) -> anyhow::Result<()> {
    let mut lines = BufReader::with_capacity(512, stream).lines();
    loop {
        let line = timeout(RESPONSE_TIMEOUT, lines.next_line()).await.context("no event arrived")??;
        let line = line.context("the stream ended")?;
        let mut readings = readings.borrow_mut();
        if let (Some(sent), true) = (parse_sending_time(&line), readings.is_measuring) {
            readings.delays.push(monotonic_nanos().saturating_sub(sent));
            if let Some(events) = readings.events.get_mut(number) {
                *events += 1;
            }
        }
    }
}

/// Parses the moment in `data: {"sent":…}`. Chunk sizes and the blank lines between events contain none.
pub(super) fn parse_sending_time(line: &str) -> Option<u64> {
    line.strip_prefix("data: {\"sent\":")?.strip_suffix('}')?.parse().ok()
}
