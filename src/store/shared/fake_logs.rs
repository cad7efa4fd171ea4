//! Logs of the server for unit tests, and the gateways that are alive.

use super::log_engine::{LogAppend, LogPage};
use bytes::Bytes;
use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};
use tokio::time::Instant;

#[derive(Debug)]
struct FakeLog {
    header: Bytes,
    first_index: u64,
    entries: VecDeque<Bytes>,
    ends_at: Instant,
}

/// The logs, and the ends of heartbeats.
#[derive(Debug, Default)]
pub struct FakeLogs {
    logs: HashMap<u128, FakeLog>,
    gateways: HashMap<String, Instant>,
    /// How many trips have appended something, and how many have read something.
    pub trips: (usize, usize),
}

impl FakeLogs {
    pub(super) fn append(&mut self, appends: &[LogAppend]) {
        self.trips.0 += 1;
        let now = Instant::now();
        self.logs.retain(|_, log| log.ends_at > now);
        for append in appends {
            let first = append.first_index.unwrap_or_default();
            let log = self.logs.entry(append.log).or_insert_with(|| FakeLog {
                header: Bytes::new(),
                first_index: first,
                entries: VecDeque::new(),
                ends_at: now,
            });
            let next = log.first_index + log.entries.len() as u64;
            let index = append.first_index.unwrap_or(next);
            if index > next {
                log.entries.clear();
                log.first_index = index;
            }
            let next = log.first_index + log.entries.len() as u64;
            if index + (append.entries.len() as u64) < next {
                continue;
            }
            let known = usize::try_from(next.saturating_sub(index)).unwrap();
            log.entries.extend(append.entries.iter().skip(known).cloned());
            let size = |log: &FakeLog| log.entries.iter().map(Bytes::len).sum::<usize>() as u64;
            while log.entries.len() > 1
                && (log.entries.len() > append.max_entries as usize || size(log) > append.max_bytes)
            {
                log.entries.pop_front();
                log.first_index += 1;
            }
            log.header = append.header.clone();
            log.ends_at = now + append.lifetime;
        }
    }

    pub(super) fn read(&mut self, log: u128, from: u64, max_bytes: u32) -> Option<LogPage> {
        self.trips.1 += 1;
        let log = self.logs.get(&log).filter(|log| log.ends_at > Instant::now())?;
        let skipped = usize::try_from(from.saturating_sub(log.first_index)).unwrap_or(usize::MAX);
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for entry in log.entries.iter().skip(skipped) {
            bytes += entry.len();
            if entries.is_empty() || bytes <= max_bytes as usize {
                entries.push(entry.clone());
            } else {
                break;
            }
        }
        let next_index = log.first_index + log.entries.len() as u64;
        Some(LogPage { header: log.header.clone(), first_index: log.first_index, next_index, entries })
    }

    pub(super) fn beat(&mut self, gateway: &str, lifetime: Duration) {
        self.gateways.insert(gateway.to_owned(), Instant::now() + lifetime);
    }

    pub(super) fn has_gateway(&self, gateway: &str) -> bool {
        self.gateways.get(gateway).is_some_and(|ends_at| *ends_at > Instant::now())
    }

    /// Ends the heartbeat of a gateway, as after its lifetime.
    pub fn end_heartbeat(&mut self, gateway: &str) {
        self.gateways.remove(gateway);
    }

    /// Returns the size of a log in entries and bytes; `None` if there is none.
    pub fn size_of_log(&self, log: u128) -> Option<(usize, usize)> {
        let log = self.logs.get(&log).filter(|log| log.ends_at > Instant::now())?;
        Some((log.entries.len(), log.entries.iter().map(Bytes::len).sum()))
    }

    /// Returns how many logs there are whose lifetime is not over.
    pub fn log_count(&self) -> usize {
        self.logs.values().filter(|log| log.ends_at > Instant::now()).count()
    }
}
