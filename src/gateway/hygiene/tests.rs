//! Chunked framing; heads are tried through the real gateway.

use super::Chunks;

/// Whether `body` passes, fed in two parts at every place.
fn passes(body: &[u8]) -> bool {
    let verdicts = (0..=body.len()).step_by(1 + body.len() / 100).map(|cut| {
        let mut chunks = Chunks::begin();
        chunks.feed(&body[..cut]).is_ok() && chunks.feed(&body[cut..]).is_ok()
    });
    let verdicts: Vec<bool> = verdicts.collect();
    assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]), "it depends on the cut: {body:?}");
    verdicts[0]
}

#[test]
fn well_formed_chunks_pass_wherever_they_are_cut() {
    for body in [
        "0\r\n\r\n",
        "2\r\n{}\r\n0\r\n\r\n",
        "2;a=b;c=\"d e\"\r\n{}\r\n000\r\nX-A: 1\r\nX-B:\r\n\r\n",
        "a\r\n0123456789\r\nA\r\n\r\n\r\n\r\n\r\n\r\n\r\n0\r\n\r\n",
        "0\r\n\r\nwhatever follows is the next request's",
    ] {
        assert!(passes(body.as_bytes()), "{body:?}");
    }
}

#[test]
fn ambiguous_chunks_are_refused_wherever_they_are_cut() {
    let (long, digits) = (format!("2;{}\r\n", "x".repeat(257)), "0".repeat(17));
    let trailers = format!("0\r\nX: {}\r\n", "x".repeat(9 << 10));
    for body in [
        "\r\n",
        "\n",
        ";a\r\n",
        " 2\r\n",
        "2 \r\n",
        "2\n{}",
        "0x2\r\n",
        "+2\r\n",
        "g\r\n",
        "2;a\nb\r\n",
        "2;a\rb",
        "2\r\n{}x",
        "2\r\n{}\n",
        "2\r\n{}\r\n\r\n",
        "0\r\n X: folded\r\n",
        "0\r\nX Y: 1\r\n",
        "0\r\nX: 1\n",
        "0\r\n: 1\r\n",
        "0\r\n\n",
        "fffffffffffffffff\r\n",
        &digits,
        &long,
        &trailers,
    ] {
        assert!(!passes(body.as_bytes()), "{body:?}");
    }
}
