//! Tests of the strict JSON parser for bodies.

use super::*;
use proptest::prelude::*;

fn parse_error(bytes: &[u8]) -> String {
    let fault = parse_json(bytes.to_vec(), JsonBounds::default()).unwrap_err();
    assert_eq!((fault.code(), fault.http_status()), (FaultCode::InvalidInput, 400));
    assert_eq!(fault.violations().len(), 1);
    fault.message().to_owned()
}

#[test]
fn r27_a_valid_body_is_parsed() {
    let text =
        r#"{"a":[1,-2,3.5,1e3,true,null,"\u00e9\ud83d\ude00"],"b":{"":{}}, "$serde_json::private::RawValue":"{"}"#;
    let value = parse_json(text, JsonBounds::default()).unwrap().to_value(Tape::ROOT);
    assert_eq!(value["a"], json!([1, -2, 3.5, 1000.0, true, null, "é😀"]));
    assert_eq!(value["$serde_json::private::RawValue"], json!("{"), "no member name has a special meaning");
}

#[test]
fn r32_a_body_that_two_parsers_could_read_differently_is_refused() {
    for body in [
        &b"{\"a\":1,\"a\":2}"[..],
        b"{\"a\":1,\"\\u0061\":2}",
        b"[{\"x\":{\"k\":1,\"k\":1}}]",
        b"\xef\xbb\xbf{}",
        b"{\"a\":\"\xff\"}",
        b"{\"a\":\"\xc0\x80\"}",
        b"\xff\xfe{\0}\0",
        b"{} {}",
        b"{}x",
        b"{}\0",
        b"",
        b" \n",
        b"{",
        b"[1,]",
        b"{\"a\":1,}",
        b"{a:1}",
        b"{'a':1}",
        b"NaN",
        b"[Infinity]",
        b"[-]",
        b"[01]",
        b"[1.]",
        b"[.5]",
        b"[+1]",
        b"[1e999]",
        b"[0x1]",
        b"\"a\nb\"",
        b"[\"\\ud800\"]",
        b"[\"\\x\"]",
        b"nul",
        b"// c\n{}",
        b"/* c */{}",
        b"<html>",
        b"\"a",
        b"a=b",
    ] {
        parse_error(body);
    }
}

#[test]
fn r32_the_refusal_has_the_position_and_quotes_little() {
    let fault = parse_json("{\"a\": [1, {\"b~/c\": tru}]}", JsonBounds::default()).unwrap_err();
    assert_eq!(fault.violations()[0].pointer, "/a/1/b~0~1c");
    assert!(fault.message().contains("line 1 column"), "{}", fault.message());
    assert!(parse_error(b"{\"aa\":1,\"aa\":2}").contains("'aa' appears twice"));
    let long = format!("{{\"{0}\":1,\"{0}\":2}}", "x".repeat(100_000));
    assert!(parse_error(long.as_bytes()).len() < 300);
    assert!(parse_error(b"{\"a\":\"\xff\"}").contains("byte 6"));
}

#[test]
fn r32_nesting_is_bounded_for_any_configuration() {
    let nested = |count: usize| [vec![b'['; count], vec![b']'; count]].concat();
    assert!(parse_json(nested(64), JsonBounds::default()).is_ok());
    assert!(parse_error(&nested(65)).contains("nested"));
    parse_error(&nested(1_000_000));
    parse_error(&vec![b'['; 1_000_000]);
    parse_error(&b"{\"a\":".repeat(100_000));
    assert!(parse_json(nested(120), JsonBounds { max_depth: u16::MAX }).is_ok());
    assert!(parse_json(nested(121), JsonBounds { max_depth: u16::MAX }).is_err());
    assert!(parse_json("[]", JsonBounds { max_depth: 0 }).is_err());
    assert!(parse_json("1", JsonBounds { max_depth: 0 }).is_ok());
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_json(bytes, JsonBounds::default());
    }

    #[test]
    fn an_accepted_body_has_the_value_that_serde_json_reads(text in "[\\[\\]{}\",:0-9a-c\\\\ .eE+-]{0,40}") {
        if let Ok(tape) = parse_json(text.clone(), JsonBounds::default()) {
            prop_assert_eq!(tape.to_value(Tape::ROOT), serde_json::from_str::<Value>(&text).unwrap());
        }
    }
}

#[test]
fn every_value_out_of_bounds_is_reported_at_once() {
    let config = ContractConfig {
        max_depth: 0,
        max_body_size: crate::values::ByteSize::from_kib(1 << 20),
        batch: BatchConfig { max_items: 0, max_concurrency: 1_000 },
        ..ContractConfig::default()
    };
    assert_eq!(config.problems().len(), 4);
    assert!(ContractConfig::default().problems().is_empty());
}
