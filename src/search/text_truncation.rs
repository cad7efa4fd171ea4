//! Truncation of texts to a number of bytes.

/// Truncates `text` to at most `max_bytes` bytes.
pub(super) fn truncate(text: &str, max_bytes: usize) -> &str {
    text.split_at(text.floor_char_boundary(max_bytes)).0
}
