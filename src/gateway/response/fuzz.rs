//! Entry points for fuzzing: event streams of agents.

pub use super::response_normalization::fuzz::check_agent_responses;

use super::{error_events::ErrorEventDetector, event_boundaries::EventSplitter};
use bytes::Bytes;

/// Splits a stream at event boundaries. The first byte is the length of the chunks: no byte is lost, added or moved.
pub fn check_event_boundaries(data: &[u8]) {
    let Some((length, stream)) = data.split_first() else { return };
    let mut splitter = EventSplitter::default();
    let mut passed = Vec::new();
    for chunk in stream.chunks(usize::from(*length).max(1)) {
        passed.extend_from_slice(&splitter.push(Bytes::copy_from_slice(chunk)));
        assert!(
            !splitter.is_between_events() || passed.is_empty() || passed.ends_with(b"\n") || passed.ends_with(b"\r")
        );
    }
    passed.extend_from_slice(&splitter.take_rest());
    assert_eq!(passed, stream, "the stream changed");
    let mut detector = ErrorEventDetector::default();
    let _ = detector.push(&Bytes::copy_from_slice(stream));
    let _ = detector.finish();
}
