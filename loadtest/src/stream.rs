//! Streams: how long after the agent sent an event did the caller have it.

use crate::agent::{EVENTS, now};
use crate::client::Connection;
use crate::load::{Target, join};
use anyhow::Context as _;
use std::io::{BufRead as _, BufReader, Write as _};

/// Reads `streams` at once to their end; each event's delay in nanoseconds, sorted.
pub(crate) fn delays(target: &Target, streams: u64) -> anyhow::Result<Vec<u64>> {
    let threads = (0..streams).map(|_| {
        let target = target.clone();
        std::thread::spawn(move || one(&target))
    });
    let mut delays: Vec<u64> = join(threads.collect())?.into_iter().flatten().collect();
    delays.sort_unstable();
    Ok(delays)
}

fn one(target: &Target) -> anyhow::Result<Vec<u64>> {
    let mut stream = Connection::open(target.address)?.into_wire();
    stream.write_all(&target.request.bytes)?;
    let mut delays = Vec::with_capacity(EVENTS);
    let mut first = None;
    for line in BufReader::new(stream).lines() {
        let line = line.context("the stream broke")?;
        if let Some(sent) = sent(&line) {
            delays.push(now().saturating_sub(sent));
        }
        first.get_or_insert(line);
        if delays.len() == EVENTS {
            return Ok(delays);
        }
    }
    anyhow::bail!("{} of {EVENTS} events arrived (answer: {:?})", delays.len(), first)
}

/// The moment in `data: {"sent":…}`; chunk sizes and blank lines between events have none.
fn sent(line: &str) -> Option<u64> {
    line.strip_prefix("data: {\"sent\":")?.strip_suffix('}')?.parse().ok()
}
