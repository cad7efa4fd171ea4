//! Entry points for fuzzing: resumable event streams.

use super::sse_splitter::SseSplitter;

const MAX_EVENT: usize = 1 << 10;

/// Splits a stream into numbered events. The first byte is the length of the chunks; numbers never decrease, and the
/// memory for an incomplete event is bounded.
pub fn check_resumable_events(data: &[u8]) {
    let Some((length, stream)) = data.split_first() else { return };
    let mut splitter = SseSplitter::default();
    let mut last = 0;
    for chunk in stream.chunks(usize::from(*length).max(1)) {
        for event in splitter.push(chunk, MAX_EVENT) {
            assert!(event.number >= last, "the numbers of events decrease");
            last = event.number;
        }
    }
    let rest: usize = splitter.finish().iter().map(|event| event.bytes.len()).sum();
    assert!(rest <= MAX_EVENT + usize::from(*length).max(1) + 64, "an incomplete event exceeds its bound");
}
