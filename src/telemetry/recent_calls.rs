//! The most recent lines of the access log, and when each caller was last seen, for the console.
//!
//! The writer thread of the access log fills both, after it wrote a batch; a call never does. Of a batch only the last
//! lines are looked at that can be kept, at most 2,000 lines and 1 MiB, so that the work of a batch is bounded whatever
//! its size. A line costs a search for its end, a copy of some 400 bytes into a buffer that was allocated before, a
//! search for the caller, and one look into a map: measured 150 to 250 ns, and 370 ns where every line has a new caller.
//! That is 0.03 % of one core at 1,000 calls a second. The thread parses no JSON. A page that reads the lines holds the
//! lock while it copies them, for 70 µs, during which the thread waits, and calls go on: they share another lock with the
//! thread.
//!
//! Memory: 2 MiB for the lines, and at most some 4 MiB for the callers. While nothing is kept, a batch costs one load of a
//! flag.

use memchr::{memchr, memmem, memrchr};
use parking_lot::Mutex;
use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    sync::{LazyLock, OnceLock},
    time::SystemTime,
};

/// Maximum number of lines that are kept.
const MAX_LINES: usize = 2_000;

/// Maximum bytes of the lines that are kept.
const MAX_BYTES: usize = 1 << 20;

/// Maximum number of callers whose last call is remembered.
const MAX_CALLERS: usize = 10_000;

/// How many callers are forgotten at once, so that the search for the oldest is rare.
const FORGOTTEN_AT_ONCE: usize = MAX_CALLERS / 10;

/// How the member of a line begins that names the caller. No other text of a line contains it, because the quotation
/// marks within a string are escaped.
const CALLER_MEMBER: &[u8] = b",\"caller\":\"";

/// Finds [`CALLER_MEMBER`]. Building it takes as long as searching a line.
static CALLER_FINDER: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new(CALLER_MEMBER));

/// The most recent lines of the access log. Empty until [`RecentCalls::keep`] is called.
#[derive(Debug, Default)]
pub struct RecentCalls {
    kept: OnceLock<KeptCalls>,
}

#[derive(Debug)]
struct KeptCalls {
    since: SystemTime,
    tables: Mutex<CallTables>,
}

#[derive(Debug, Default)]
struct CallTables {
    lines: LineRing,
    callers: CallerTable,
}

/// A copy of the lines that are kept.
#[derive(Debug)]
pub struct RecentLines {
    /// Since when lines are kept.
    pub since: SystemTime,
    /// Whether these are all lines since then.
    pub is_complete: bool,
    /// The number of the next line.
    next_number: u64,
    text: Vec<u8>,
}

/// A line of the access log.
#[derive(Clone, Copy, Debug)]
pub struct RecentLine<'a> {
    /// Number of the line, counted since the start: a later line has a higher number.
    pub number: u64,
    /// The line, one JSON object.
    pub json: &'a [u8],
}

impl RecentCalls {
    /// Begins to keep lines.
    pub fn keep(&self) {
        self.kept.get_or_init(|| KeptCalls { since: SystemTime::now(), tables: Mutex::default() });
    }

    /// Keeps the last lines of a batch, each with its line break.
    pub fn record_lines(&self, batch: &[u8]) {
        let Some(kept) = self.kept.get() else { return };
        if batch.is_empty() {
            return;
        }
        // The time of the batch is that of its calls to 10 ms, and needs no parser.
        let (tail, now) = (last_lines(batch), SystemTime::now());
        let mut tables = kept.tables.lock();
        let CallTables { lines, callers } = &mut *tables;
        lines.has_left_out |= tail.len() < batch.len();
        for line in lines_of(tail) {
            let number = lines.push(line);
            if let Some(caller) = caller_of(line) {
                callers.record(&caller, LastCall { number, at: now });
            }
        }
    }

    /// Returns the lines that are kept; `None` if none are ever kept.
    pub fn lines(&self) -> Option<RecentLines> {
        let kept = self.kept.get()?;
        let tables = kept.tables.lock();
        let LineRing { has_left_out, next_number, .. } = tables.lines;
        let text = tables.lines.text().to_vec();
        Some(RecentLines { since: kept.since, is_complete: !has_left_out, next_number, text })
    }

    /// Returns when a caller, as the log names it, made a call that was looked at; to 10 ms.
    pub fn last_seen(&self, logged_caller: &str) -> Option<SystemTime> {
        let tables = self.kept.get()?.tables.lock();
        tables.callers.last_calls.get(logged_caller).map(|call| call.at)
    }
}

impl RecentLines {
    /// Returns the lines, the newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = RecentLine<'_>> {
        let mut rest = self.text.as_slice();
        let mut number = self.next_number;
        std::iter::from_fn(move || {
            let text = rest.strip_suffix(b"\n")?;
            let start = memrchr(b'\n', text).map_or(0, |end| end + 1);
            rest = text.get(..start)?;
            number = number.saturating_sub(1);
            Some(RecentLine { number, json: text.get(start..)? })
        })
    }
}

/// The lines, one after the other, each with its line break.
#[derive(Debug, Default)]
struct LineRing {
    /// At most twice the bytes that are kept: the lines are moved to the beginning once for each time that they were
    /// replaced, so that every line is copied twice at most.
    bytes: Vec<u8>,
    /// Where the oldest line begins.
    start: usize,
    /// The lengths of the lines.
    lengths: VecDeque<usize>,
    /// Whether there were lines that are kept no more, or never were.
    has_left_out: bool,
    next_number: u64,
}

impl LineRing {
    /// Adds a line, and returns its number. The oldest lines make place for it.
    fn push(&mut self, line: &[u8]) -> u64 {
        while self.lengths.len() >= MAX_LINES || self.text().len() + line.len() > MAX_BYTES {
            let Some(oldest) = self.lengths.pop_front() else { break };
            self.start += oldest;
            self.has_left_out = true;
        }
        if self.bytes.capacity() == 0 {
            self.bytes.reserve_exact(2 * MAX_BYTES);
        }
        if self.bytes.len() + line.len() > 2 * MAX_BYTES {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(line);
        self.lengths.push_back(line.len());
        self.next_number += 1;
        self.next_number - 1
    }

    fn text(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug)]
struct LastCall {
    /// The number of the line. No two calls have one, so that the oldest callers can be told apart.
    number: u64,
    at: SystemTime,
}

#[derive(Debug, Default)]
struct CallerTable {
    last_calls: HashMap<Box<str>, LastCall>,
}

impl CallerTable {
    fn record(&mut self, caller: &str, call: LastCall) {
        if let Some(last) = self.last_calls.get_mut(caller) {
            *last = call;
            return;
        }
        if self.last_calls.len() >= MAX_CALLERS {
            self.forget_oldest();
        }
        self.last_calls.insert(caller.into(), call);
    }

    fn forget_oldest(&mut self) {
        let mut numbers: Vec<u64> = self.last_calls.values().map(|call| call.number).collect();
        if numbers.len() > FORGOTTEN_AT_ONCE {
            let (_, bound, _) = numbers.select_nth_unstable(FORGOTTEN_AT_ONCE);
            let bound = *bound;
            self.last_calls.retain(|_, call| call.number >= bound);
        }
    }
}

/// Returns the end of `batch` that can be kept: whole lines.
fn last_lines(batch: &[u8]) -> &[u8] {
    let mut start = batch.len();
    for _ in 0..MAX_LINES {
        // Before the line break of the line that ends at `start`.
        let before = batch.get(..start.saturating_sub(1)).unwrap_or_default();
        let line_start = memrchr(b'\n', before).map_or(0, |end| end + 1);
        if start == 0 || batch.len() - line_start > MAX_BYTES {
            break;
        }
        start = line_start;
    }
    batch.get(start..).unwrap_or_default()
}

fn lines_of(mut text: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (line, rest) = text.split_at_checked(memchr(b'\n', text)? + 1)?;
        text = rest;
        Some(line)
    })
}

/// Returns the caller that a line names.
fn caller_of(line: &[u8]) -> Option<Cow<'_, str>> {
    let start = CALLER_FINDER.find(line)? + CALLER_MEMBER.len();
    let value = line.get(start..)?;
    let end = memchr(b'"', value)?;
    let text = value.get(..end)?;
    if memchr(b'\\', text).is_none() {
        return std::str::from_utf8(text).ok().map(Cow::Borrowed);
    }
    // A name with a character that JSON escapes, which is rare: one string is parsed.
    let mut strings = serde_json::Deserializer::from_slice(line.get(start - 1..)?).into_iter::<String>();
    strings.next()?.ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> RecentCalls {
        let calls = RecentCalls::default();
        calls.keep();
        calls
    }

    fn texts(calls: &RecentCalls) -> Vec<String> {
        let lines = calls.lines().unwrap();
        lines.newest_first().map(|line| String::from_utf8_lossy(line.json).into_owned()).collect()
    }

    #[test]
    fn nothing_is_kept_before_it_is_turned_on() {
        let calls = RecentCalls::default();
        calls.record_lines(b"{\"a\":1,\"caller\":\"key:a\"}\n");
        assert!(calls.lines().is_none() && calls.last_seen("key:a").is_none());
        calls.keep();
        assert_eq!(texts(&calls), Vec::<String>::new());
    }

    #[test]
    fn lines_are_returned_newest_first_with_their_numbers() {
        let calls = kept();
        calls.record_lines(b"{\"a\":1}\n{\"a\":2}\n");
        calls.record_lines(b"");
        calls.record_lines(b"{\"a\":3}\n");
        assert_eq!(texts(&calls), ["{\"a\":3}", "{\"a\":2}", "{\"a\":1}"]);
        let lines = calls.lines().unwrap();
        assert_eq!(lines.newest_first().map(|line| line.number).collect::<Vec<_>>(), [2, 1, 0]);
        assert!(lines.is_complete);
    }

    #[test]
    fn the_number_of_lines_is_bounded_over_batches_and_within_one() {
        let line = |number: usize| format!("{{\"number\":{number}}}\n");
        let (one, many) = (kept(), kept());
        one.record_lines((0..5_000).map(line).collect::<String>().as_bytes());
        for number in 0..5_000 {
            many.record_lines(line(number).as_bytes());
        }
        for calls in [&one, &many] {
            let texts = texts(calls);
            assert_eq!((texts.len(), &*texts[0], &*texts[1_999]), (2_000, "{\"number\":4999}", "{\"number\":3000}"));
            assert!(!calls.lines().unwrap().is_complete);
        }
    }

    #[test]
    fn the_bytes_are_bounded_over_batches_and_within_one() {
        let line = format!("{{\"text\":\"{}\"}}\n", "x".repeat(10_000));
        let (one, many) = (kept(), kept());
        one.record_lines(line.repeat(500).as_bytes());
        for _ in 0..500 {
            many.record_lines(line.as_bytes());
        }
        for calls in [&one, &many] {
            let lines = calls.lines().unwrap();
            assert_eq!(lines.text.len(), MAX_BYTES / line.len() * line.len());
            assert_eq!(lines.newest_first().count(), MAX_BYTES / line.len());
            assert!(calls.kept.get().unwrap().tables.lock().lines.bytes.capacity() <= 2 * MAX_BYTES);
        }
    }

    #[test]
    fn a_line_longer_than_the_ring_is_not_kept_and_hides_only_what_was_before_it_in_its_batch() {
        let calls = kept();
        let long = format!("{{\"text\":\"{}\"}}\n", "x".repeat(MAX_BYTES));
        calls.record_lines(b"{\"a\":1}\n");
        calls.record_lines(long.as_bytes());
        assert_eq!(texts(&calls), ["{\"a\":1}"]);
        calls.record_lines(format!("{{\"a\":2}}\n{long}{{\"a\":3}}\n").as_bytes());
        assert_eq!(texts(&calls), ["{\"a\":3}", "{\"a\":1}"]);
        let whole = format!("{}\n", "x".repeat(MAX_BYTES - 1));
        calls.record_lines(whole.as_bytes());
        assert_eq!(texts(&calls).len(), 1, "a line of the size of the ring replaces all others");
    }

    #[test]
    fn a_batch_that_ends_within_a_line_keeps_the_whole_lines() {
        let calls = kept();
        calls.record_lines(b"{\"a\":1}\n{\"a\":");
        assert_eq!(texts(&calls), ["{\"a\":1}"]);
        calls.record_lines(b"\n\n");
        assert_eq!(texts(&calls).len(), 3, "an empty line is a line");
    }

    #[test]
    fn callers_are_seen_under_the_names_of_the_log_and_no_text_of_a_call_names_another() {
        let calls = kept();
        let path = serde_json::to_string(r#"/x","caller":"key:forged"#).unwrap();
        let batch =
            format!("{{\"a\":1,\"path\":{path},\"caller\":\"key:team-a\"}}\n{{\"a\":1,\"caller\":\"key:\\\"é\\n\"}}\n");
        calls.record_lines(batch.as_bytes());
        assert!(calls.last_seen("key:team-a").is_some() && calls.last_seen("key:\"é\n").is_some());
        for other in ["key:forged", "key:team-b", "", "key:\\\"é\\n"] {
            assert!(calls.last_seen(other).is_none(), "{other}");
        }
        calls.record_lines(
            b"{\"a\":1,\"caller\":\"key:cut\n{\"a\":1,\"caller\":\"\\ud800\"}\n{\"a\":1,\"caller\":\"\\\n",
        );
        assert_eq!(calls.kept.get().unwrap().tables.lock().callers.last_calls.len(), 2);
    }

    #[test]
    fn the_oldest_of_too_many_callers_are_forgotten() {
        let calls = kept();
        let batch = |callers: std::ops::Range<usize>| -> String {
            callers.map(|caller| format!("{{\"a\":1,\"caller\":\"key:{caller}\"}}\n")).collect()
        };
        for start in (0..25_000).step_by(1_000) {
            calls.record_lines(batch(start..start + 1_000).as_bytes());
            // One caller goes on.
            calls.record_lines(batch(0..1).as_bytes());
        }
        let known = calls.kept.get().unwrap().tables.lock().callers.last_calls.len();
        assert!((9_000..=MAX_CALLERS).contains(&known), "{known}");
        assert!(calls.last_seen("key:0").is_some() && calls.last_seen("key:24999").is_some());
        assert!(calls.last_seen("key:1").is_none());
    }
}
