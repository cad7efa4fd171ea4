//! Memory, fuel and slices.

use super::*;
use crate::fuel::Fuel;
use std::task::Poll;

/// Parses in slices of `units`; returns the result, the fuel used, and the largest memory on the way.
fn parse_in_slices(text: &[u8], units: u64) -> (Result<Tape, TapeError>, u64, usize) {
    let mut parser = TapeParser::new(Bytes::copy_from_slice(text), &TapeBounds::default());
    let (mut used, mut memory) = (0, 0);
    loop {
        let mut fuel = Fuel::new(units);
        let result = parser.resume(&mut fuel);
        used += fuel.used();
        memory = memory.max(parser.memory());
        if let Poll::Ready(result) = result {
            return (result, used, memory);
        }
    }
}

fn worst_texts() -> Vec<(&'static str, String)> {
    let members = |name: fn(usize) -> String, count: usize| {
        let members: Vec<String> = (0..count).map(|index| format!("\"{}\":0", name(index))).collect();
        format!("{{{}}}", members.join(","))
    };
    let deep = "[".repeat(120) + &"]".repeat(120);
    vec![
        ("one digit", "0".to_owned()),
        ("zeros", format!("[{}0]", "0,".repeat(500_000))),
        ("empty arrays", format!("[{}[]]", "[],".repeat(330_000))),
        ("empty objects", format!("[{}{{}}]", "{},".repeat(330_000))),
        ("small objects", format!("[{}0]", "{\"\":0},".repeat(150_000))),
        ("deep objects", format!("{}0{}", "{\"\":".repeat(119), "}".repeat(119))),
        ("deep arrays", format!("[{}{}]", format!("{},", deep.get(1..239).unwrap()).repeat(4_000), "0")),
        ("short names", members(|index| format!("{index:x}"), 120_000)),
        ("long names", members(|index| format!("{index:060}"), 15_000)),
        ("escaped names", members(|index| format!("\\n{index}"), 80_000)),
        ("one long name", format!("{{\"{}\":0,\"{}\":0}}", "n".repeat(500_000), "n".repeat(499_999))),
        ("one long escaped name", format!("{{\"{}\":0}}", "\\u00e9".repeat(160_000))),
        ("one long string", format!("\"{}\"", "x".repeat(1_000_000))),
        ("escapes", format!("\"{}\"", "\\\\".repeat(500_000))),
        ("surrogates", format!("\"x{}\"", "\\ud83d\\ude00".repeat(80_000))),
        ("characters", format!("\"x{}\"", "é😀".repeat(160_000))),
        ("spaces", format!("{}1{}", " ".repeat(500_000), "\n".repeat(500_000))),
        ("digits", format!("[1.{}e-{}1]", "1".repeat(500_000), "0".repeat(500_000))),
    ]
}

#[test]
fn memory_is_bounded_for_the_worst_texts() {
    for (name, text) in worst_texts() {
        let (tape, _, peak) = parse_in_slices(text.as_bytes(), 1);
        let tape = tape.unwrap_or_else(|why| panic!("{name}: {why}"));
        assert!(tape.memory() <= 8 * tape.entry_count(), "{name}");
        assert!(tape.memory() <= 4 * text.len() + 4, "{name}: {} for {}", tape.memory(), text.len());
        assert!(peak <= 8 * text.len() + 20_000, "{name}: {peak} for {}", text.len());
    }
}

#[test]
fn slices_of_any_size_give_the_same_tape_for_the_same_fuel() {
    for (name, text) in worst_texts() {
        let (whole, used, _) = parse_in_slices(text.as_bytes(), u64::MAX);
        let whole = whole.unwrap();
        assert!(used as usize <= text.len() * 2 + 16, "{name}: {used} for {}", text.len());
        for units in [1, 7, 1_000] {
            let (tape, in_slices, _) = parse_in_slices(text.as_bytes(), units);
            assert_eq!((tape.unwrap().entries == whole.entries, in_slices), (true, used), "{name} {units}");
        }
    }
}

#[test]
fn errors_are_the_same_in_slices_of_any_size() {
    for (name, text) in worst_texts() {
        for broken in [text.get(..text.len() - 1).unwrap().to_owned(), text.clone() + "x", text.replace('0', "\u{1}")] {
            let (whole, used, _) = parse_in_slices(broken.as_bytes(), u64::MAX);
            for units in [1, 7, 1_000] {
                let (result, in_slices, _) = parse_in_slices(broken.as_bytes(), units);
                assert_eq!((result.err(), in_slices), (whole.as_ref().err().cloned(), used), "{name} {units}");
            }
        }
    }
}

#[test]
fn positions_are_those_of_serde_json_wherever_a_block_ends() {
    for padding in (0..5_000).step_by(37) {
        let text = format!("[\n{}\n\"a\n", "1,\n".repeat(padding));
        let expected = serde_json::from_str::<serde_json::Value>(&text).unwrap_err().to_string();
        assert_eq!(parse_error(&text).reason, expected);
    }
}

#[test]
fn a_text_that_is_too_long_is_refused_at_once() {
    // Zeros that are never written or read take no memory.
    let mut parser = TapeParser::new(vec![0; MAX_TEXT_BYTES + 1].into(), &TapeBounds::default());
    let mut fuel = Fuel::new(1);
    let Poll::Ready(Err(why)) = parser.resume(&mut fuel) else { panic!("accepted") };
    assert_eq!((why.reason.as_str(), fuel.used()), ("the text is longer than 268435455 bytes", 0));
}

#[test]
fn a_string_is_decoded_in_slices_wherever_a_block_ends() {
    for unit in
        ["\\\\", "\\n", "\\u00e9", "\\ud83d\\ude00", "é", "😀", "x", "\\\\u", "\\\\\\n", "\\\"\\ud83d\\ude00\\\\"]
    {
        for padding in 0..14 {
            let text = format!("\"{}{}\"", "p".repeat(padding), unit.repeat(3_000));
            let tape = parse(&text).unwrap();
            let expected: String = serde_json::from_str(&text).unwrap();
            assert_eq!(tape.text(Tape::ROOT), expected);
            assert!(tape.is_text(Tape::ROOT, &expected));
            let shorter: String = expected.chars().skip(1).collect();
            assert!(!tape.is_text(Tape::ROOT, &shorter) && !tape.is_text(Tape::ROOT, &format!("{expected}x")));
            let mut all_used = Vec::new();
            for units in [1, 7, 1_000, u64::MAX] {
                let (mut decoder, mut used) = (TextDecoder::new(), 0);
                loop {
                    let mut fuel = Fuel::new(units);
                    let result = decoder.resume(&tape, Tape::ROOT, &mut fuel);
                    used += fuel.used();
                    if result.is_ready() {
                        break;
                    }
                }
                assert_eq!(decoder.text(), expected, "{unit} {padding} {units}");
                all_used.push(used);
            }
            all_used.dedup();
            assert_eq!(all_used.len(), 1);
        }
    }
}

#[test]
fn a_decoder_is_used_again() {
    let tape = parse(r#"["a\n", "b", 1, ""]"#).unwrap();
    let mut decoder = TextDecoder::new();
    for (item, expected) in tape.items(Tape::ROOT).zip(["a\n", "b", "", ""]) {
        decoder.restart();
        assert!(decoder.resume(&tape, item, &mut Fuel::new(10)).is_ready());
        assert_eq!(decoder.text(), expected);
    }
}
