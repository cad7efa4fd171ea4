//! Bounds the frames that an HTTP/2 peer sends without effect: WINDOW_UPDATE, PRIORITY, PING with or without ACK,
//! SETTINGS, empty DATA and unknown frames cost processor time, and the codec accepts any number of them. The meter reads
//! the headers of the frames (RFC 9113 §4.1) beside the codec, which checks their syntax.

use std::{io, time::Instant};

/// The frames without effect that a peer may send at once.
const MAX_CREDIT: u32 = 10_000;
/// The frames without effect that it may send in each second beyond that.
const CREDIT_PER_SECOND: u32 = 1_000;
/// What a message, and a part of a body, allow: peers update windows and set priorities with them.
const CREDIT_PER_MESSAGE: u32 = 16;
const CREDIT_PER_DATA: u32 = 2;
/// The bytes written that allow one more frame, such as an update of a window.
const WRITTEN_BYTES_PER_CREDIT: usize = 512;

/// Length of the connection preface (RFC 9113 §3.4), which no frame header precedes.
const PREFACE_BYTES: usize = 24;
const HEADER_BYTES: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;

/// Counts the frames of one connection.
#[derive(Debug)]
pub struct Http2FrameMeter {
    /// The bytes to skip before the next header: the preface, or the payload of a frame.
    skip: usize,
    header: [u8; HEADER_BYTES],
    header_length: usize,
    credit: u32,
    /// The bytes that were written and gave no credit yet.
    written: usize,
    refilled_at: Instant,
}

impl Http2FrameMeter {
    /// Creates the meter of what a client sends, whose preface was not read.
    pub fn of_client() -> Self {
        Self::new(PREFACE_BYTES)
    }

    /// Creates the meter of what a server sends.
    pub fn of_server() -> Self {
        Self::new(0)
    }

    fn new(skip: usize) -> Self {
        Self {
            skip,
            header: [0; HEADER_BYTES],
            header_length: 0,
            credit: MAX_CREDIT,
            written: 0,
            refilled_at: Instant::now(),
        }
    }

    /// Records bytes that were written.
    pub fn record_written(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written >= WRITTEN_BYTES_PER_CREDIT {
            let credit = u32::try_from(self.written / WRITTEN_BYTES_PER_CREDIT).unwrap_or(u32::MAX);
            self.earn(credit);
            self.written %= WRITTEN_BYTES_PER_CREDIT;
        }
    }

    /// Counts the frames in the next bytes of the connection.
    ///
    /// # Errors
    /// The peer sends too many frames without effect.
    pub fn feed(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            let missing = (HEADER_BYTES - self.header_length).min(bytes.len());
            let (part, rest) = bytes.split_at(missing);
            if let Some(target) = self.header.get_mut(self.header_length..self.header_length + missing) {
                target.copy_from_slice(part);
            }
            self.header_length += missing;
            bytes = rest;
            if self.header_length == HEADER_BYTES {
                self.header_length = 0;
                self.count_frame()?;
            }
        }
        Ok(())
    }

    fn count_frame(&mut self) -> io::Result<()> {
        let [high, middle, low, kind, flags, ..] = self.header;
        let length = u32::from_be_bytes([0, high, middle, low]);
        self.skip = length as usize;
        match kind {
            HEADERS => self.earn(CREDIT_PER_MESSAGE),
            DATA if length > 0 => self.earn(CREDIT_PER_DATA),
            DATA if flags & END_STREAM != 0 => {}
            CONTINUATION if length > 0 => {}
            _ => return self.spend(),
        }
        Ok(())
    }

    fn earn(&mut self, credit: u32) {
        self.credit = self.credit.saturating_add(credit).min(MAX_CREDIT);
    }

    fn spend(&mut self) -> io::Result<()> {
        if self.credit == 0 {
            // The clock is read only here, so that other connections do not pay for it.
            let elapsed = self.refilled_at.elapsed().as_millis();
            let earned = elapsed.saturating_mul(u128::from(CREDIT_PER_SECOND)) / 1_000;
            self.refilled_at = Instant::now();
            self.earn(u32::try_from(earned).unwrap_or(u32::MAX));
        }
        self.credit = self.credit.checked_sub(1).ok_or_else(frame_flood)?;
        Ok(())
    }
}

#[cold]
fn frame_flood() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "too many HTTP/2 frames without effect")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    fn meter_after_preface() -> Http2FrameMeter {
        let mut meter = Http2FrameMeter::of_client();
        meter.feed(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        meter
    }

    /// Returns how many of `frames` pass.
    fn passed(meter: &mut Http2FrameMeter, frame: &[u8], frames: u32) -> u32 {
        (0..frames).take_while(|_| meter.feed(frame).is_ok()).count() as u32
    }

    #[test]
    fn every_kind_of_frame_without_effect_has_a_bound_however_its_bytes_arrive() {
        for (kind, flags, payload) in [
            (8, 0, &[0, 0, 0, 1][..]),
            (2, 0, &[0; 5]),
            (6, 0, &[0; 8]),
            (6, 1, &[0; 8]),
            (4, 0, &[]),
            (4, 1, &[]),
            (0, 0, &[]),
            (9, 0, &[]),
            (200, 7, &[1; 100]),
        ] {
            let passed = passed(&mut meter_after_preface(), &frame(kind, flags, payload), 3 * MAX_CREDIT);
            assert!((MAX_CREDIT..2 * MAX_CREDIT).contains(&passed), "{passed} frames of kind {kind} pass");
        }
        let bytes = frame(8, 0, &[0, 0, 0, 1]).repeat(3 * MAX_CREDIT as usize);
        for size in [1, 5, 9, 13, 4_096] {
            let mut meter = meter_after_preface();
            assert!(bytes.chunks(size).any(|chunk| meter.feed(chunk).is_err()), "in reads of {size} bytes");
        }
    }

    #[test]
    fn requests_bodies_and_responses_allow_the_frames_that_clients_send_with_them() {
        let mut meter = meter_after_preface();
        let window_updates = frame(8, 0, &[0, 0, 0, 1]).repeat(2);
        for _ in 0..5 * MAX_CREDIT {
            meter.feed(&frame(0, 0, &[0; 100])).unwrap();
            meter.feed(&window_updates).unwrap();
        }
        let ping = frame(6, 0, &[0; 8]);
        for _ in 0..5 * MAX_CREDIT {
            meter.feed(&[frame(1, 5, &[0; 30]), window_updates.clone(), ping.clone()].concat()).unwrap();
        }
        for _ in 0..5 * MAX_CREDIT {
            meter.record_written(1_024);
            meter.feed(&window_updates).unwrap();
        }
    }

    #[test]
    fn a_peer_that_waits_may_send_more() {
        let mut meter = meter_after_preface();
        let ping = frame(6, 0, &[0; 8]);
        assert!(passed(&mut meter, &ping, 2 * MAX_CREDIT) < 2 * MAX_CREDIT);
        meter.refilled_at = Instant::now().checked_sub(std::time::Duration::from_secs(3)).unwrap();
        assert!(passed(&mut meter, &ping, 2 * MAX_CREDIT) >= 3 * CREDIT_PER_SECOND);
    }
}
