//! The empty lines that end server-sent events.

/// So many bytes before the end of a line are compared one by one, which is faster where lines are short.
const BLOCK: usize = 64;

/// Returns the index after the last empty line: `\n\n`, `\r\n\r\n` or `\r\r`. Takes about as long for short lines
/// as for long ones.
pub fn last_event_end(bytes: &[u8]) -> Option<usize> {
    let mut end = bytes.len();
    loop {
        end = memchr::memrchr2(b'\n', b'\r', bytes.get(..end)?)? + 1;
        let start = end.saturating_sub(BLOCK);
        let pairs = bytes.get(start..end)?.windows(2).enumerate().rev();
        let found = pairs.map(|(at, pair)| (start + at, pair)).find(|(at, pair)| match pair {
            [b'\n', b'\n'] | [b'\r', b'\r'] => true,
            [b'\r', b'\n'] => at.checked_sub(1).and_then(|at| bytes.get(at)) == Some(&b'\n'),
            _ => false,
        });
        if let Some((at, _)) = found {
            return Some(at + 2);
        }
        // The first byte of the block may be the second one of a pair.
        end = if start == 0 { return None } else { start + 1 };
    }
}

/// Whether the last line is empty.
pub fn ends_with_empty_line(bytes: &[u8]) -> bool {
    matches!(bytes, [.., b'\n', b'\n'] | [.., b'\n', b'\r', b'\n'] | [.., b'\r', b'\r'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_empty_line_is_found_in_all_short_texts() {
        let find = |bytes: &[u8], pattern: &[u8]| {
            let at = bytes.windows(pattern.len()).rposition(|window| window == pattern);
            at.map(|at| at + pattern.len())
        };
        for number in 0..3usize.pow(8) {
            let digits = (0..8).map(|place| number / 3usize.pow(place) % 3);
            let text: Vec<u8> = digits.map(|digit| b"a\n\r"[digit]).collect();
            for length in 0..=text.len() {
                let text = &text[..length];
                let expected = find(text, b"\n\n").max(find(text, b"\n\r\n")).max(find(text, b"\r\r"));
                assert_eq!(last_event_end(text), expected, "{:?}", String::from_utf8_lossy(text));
                // Across blocks, too.
                for padding in [BLOCK - 4, BLOCK - 1, 3 * BLOCK] {
                    let padded = [text, &vec![b'a'; padding]].concat();
                    assert_eq!(last_event_end(&padded), expected, "{padding}");
                }
            }
        }
    }
}
