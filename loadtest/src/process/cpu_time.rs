//! The CPU time of a process and all its descendants, from `/proc`.

use anyhow::Context as _;
use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// The fields of `/proc/PID/stat` that are needed.
#[derive(Debug, PartialEq)]
struct ProcessStat {
    parent: u32,
    /// User and system time in clock ticks, of the process and of its children that have ended and were waited for.
    ticks: u64,
}

impl ProcessStat {
    fn parse(line: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, which may contain any character: proc(5).
        let (_, fields) = line.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let ticks = fields.get(11..15)?.iter().map(|field| field.parse::<u64>());
        let ticks = ticks.sum::<Result<u64, _>>().ok()?;
        Some(Self { parent: fields.get(1)?.parse().ok()?, ticks })
    }
}

/// Returns the user and system time of the process and all its descendants, of all threads.
pub(super) fn cpu_time_of_tree(root: u32) -> anyhow::Result<Duration> {
    let mut stats = HashMap::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // A process may end meanwhile.
        let line = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        stats.extend(ProcessStat::parse(&line).map(|stat| (pid, stat)));
    }
    let ticks = ticks_of_tree(root, &stats).context("the process has ended")?;
    Ok(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
}

/// Sums the ticks of a process and its descendants.
fn ticks_of_tree(root: u32, stats: &HashMap<u32, ProcessStat>) -> Option<u64> {
    let own = stats.get(&root)?.ticks;
    let children = stats.iter().filter(|(_, stat)| stat.parent == root).map(|(pid, _)| *pid);
    Some(own + children.filter_map(|child| ticks_of_tree(child, stats)).sum::<u64>())
}

#[cfg(test)]
mod tests;
