//! Packets that are too long, and bytes that are not MQTT packets.

use crate::mqtt_client::packet_limit::{MAX_PACKET_BODY, PacketTruncator};
use proptest::prelude::*;
use tokio::io::AsyncReadExt;

fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    let (mut bytes, mut length) = (vec![kind], body.len());
    loop {
        bytes.push((length & 0x7f) as u8 | if length > 0x7f { 0x80 } else { 0 });
        length >>= 7;
        if length == 0 {
            break;
        }
    }
    bytes.extend(body);
    bytes
}

/// Returns the output for `bytes`, read `step` bytes at a time.
async fn truncated(bytes: Vec<u8>, step: usize) -> Vec<u8> {
    let (mut output, mut buffer) = (Vec::new(), vec![0; step]);
    let mut truncator = PacketTruncator::new(std::io::Cursor::new(bytes));
    loop {
        match truncator.read(&mut buffer).await.unwrap() {
            0 => return output,
            count => output.extend(&buffer[..count]),
        }
    }
}

#[tokio::test]
async fn a_message_that_is_too_long_is_truncated_and_the_next_packets_are_intact() {
    let (small, after) = (packet(0x30, b"small"), packet(0x32, b"after"));
    for length in [MAX_PACKET_BODY, MAX_PACKET_BODY + 1, 3 * MAX_PACKET_BODY, 20 << 20] {
        let body: Vec<u8> = (0..length).map(|at| at as u8).collect();
        let sent = [small.clone(), packet(0x33, &body), after.clone()].concat();
        let expected = [small.clone(), packet(0x33, &body[..MAX_PACKET_BODY]), after.clone()].concat();
        for step in [7_001, 1 << 20] {
            assert!(truncated(sent.clone(), step).await == expected, "{length} {step}");
        }
    }
}

#[tokio::test]
async fn packets_of_other_types_are_never_truncated() {
    let long = packet(0x90, &vec![1; MAX_PACKET_BODY + 100]);
    assert!(truncated(long.clone(), 4096).await == long);
    let empty = [packet(0xd0, b""), packet(0xd0, b"")].concat();
    assert_eq!(truncated(empty.clone(), 1).await, empty);
}

#[tokio::test]
async fn bytes_that_are_not_mqtt_pass_unchanged() {
    let not_mqtt = [b"\x30\xff\xff\xff\xff\xff".to_vec(), vec![7; 100_000]].concat();
    assert!(truncated(not_mqtt.clone(), 999).await == not_mqtt);
    // A packet that ends too early is not completed.
    assert_eq!(truncated(b"\x30\x05ab".to_vec(), 10).await, b"\x30\x05ab");
}

proptest! {
    #[test]
    fn short_packets_pass_unchanged(
        packets in proptest::collection::vec((any::<u8>(), proptest::collection::vec(any::<u8>(), 0..300)), 0..20),
        step in 1usize..600,
    ) {
        let sent: Vec<u8> = packets.iter().flat_map(|(kind, body)| packet(*kind, body)).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        prop_assert_eq!(runtime.block_on(truncated(sent.clone(), step)), sent);
    }

    #[test]
    fn arbitrary_bytes_cause_no_panic_or_stall(bytes in proptest::collection::vec(any::<u8>(), 0..2_000), step in 1usize..50) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let output = runtime.block_on(truncated(bytes.clone(), step));
        prop_assert!(output.len() <= bytes.len());
    }
}
