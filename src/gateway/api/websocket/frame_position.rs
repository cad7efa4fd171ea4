//! Where a byte stream is in its WebSocket frames (RFC 6455 §5.2): the gateway adds a close frame of its own only between
//! two frames. Frames are not checked here; both peers do that.

/// The longest head of a frame: two bytes, a length of eight, a mask of four.
const MAX_HEAD: usize = 14;
const OPCODE: u8 = 0x0f;
const CLOSE_OPCODE: u8 = 0x8;
const MASKED: u8 = 0x80;

/// The position of a stream in its frames.
#[derive(Clone, Debug, Default)]
pub(super) struct FramePosition {
    /// The head of the frame that begins, as far as it is known.
    head: [u8; MAX_HEAD],
    head_length: usize,
    /// The frame whose payload is expected.
    frame: Option<Frame>,
    close: Option<CloseCode>,
    message_bytes: u64,
}

/// A frame whose head is complete.
#[derive(Clone, Copy, Debug)]
struct Frame {
    is_close: bool,
    is_control: bool,
    mask: [u8; 4],
    /// The bytes of the payload that passed, and all of them.
    passed: u64,
    length: u64,
}

/// The code of a close frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CloseCode([u8; 2], usize);

impl CloseCode {
    /// Returns the code, if the frame has one.
    pub(super) fn get(self) -> Option<u16> {
        (self.1 == 2).then(|| u16::from_be_bytes(self.0))
    }

    fn read(&mut self, payload: &[u8], mask: [u8; 4]) {
        for byte in payload {
            if let (Some(place), Some(mask)) = (self.0.get_mut(self.1), mask.get(self.1)) {
                *place = byte ^ mask;
                self.1 += 1;
            }
        }
    }
}

impl FramePosition {
    /// Whether the stream is between two frames.
    pub(super) fn is_between_frames(&self) -> bool {
        self.head_length == 0 && self.frame.is_none()
    }

    /// The first close frame that passed completely.
    pub(super) fn close(&self) -> Option<CloseCode> {
        self.close.filter(|_| self.frame.is_none_or(|frame| !frame.is_close))
    }

    /// The bytes of messages that passed: the payload of frames that are no control frames, and one for each such frame.
    pub(super) fn message_bytes(&self) -> u64 {
        self.message_bytes
    }

    /// Passes bytes of any number of frames.
    pub(super) fn pass(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let passed = self.pass_frame(rest);
            rest = rest.get(passed..).unwrap_or_default();
        }
    }

    /// Passes bytes up to the end of the current frame, and returns how many.
    pub(super) fn pass_frame(&mut self, bytes: &[u8]) -> usize {
        let mut count = 0;
        while self.frame.is_none() {
            let Some(byte) = bytes.get(count) else { return count };
            count += 1;
            if let Some(place) = self.head.get_mut(self.head_length) {
                *place = *byte;
            }
            self.head_length += 1;
            self.frame = self.parse_head();
        }
        let Some(frame) = &mut self.frame else { return count };
        let payload = bytes.get(count..).unwrap_or_default();
        let passed = payload.len().min(usize::try_from(frame.length - frame.passed).unwrap_or(usize::MAX));
        if frame.is_close
            && let Some(close) = &mut self.close
        {
            close.read(payload.get(..passed).unwrap_or_default(), frame.mask);
        }
        frame.passed += passed as u64;
        self.message_bytes += if frame.is_control { 0 } else { passed as u64 };
        if frame.passed == frame.length {
            (self.head_length, self.frame) = (0, None);
        }
        count + passed
    }

    /// Returns the frame once its head is complete.
    fn parse_head(&mut self) -> Option<Frame> {
        let [first, second, ..] = self.head;
        let length_size = match second & !MASKED {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask_size = if second & MASKED == 0 { 0 } else { 4 };
        let head_length = self.head_length;
        if head_length < 2 || head_length < 2 + length_size + mask_size {
            return None;
        }
        let rest = self.head.get(2..head_length)?;
        let (length, mask) = rest.split_at_checked(length_size)?;
        let opcode = first & OPCODE;
        let (is_close, is_control) = (opcode == CLOSE_OPCODE, opcode >= CLOSE_OPCODE);
        if is_close && self.close.is_none() {
            self.close = Some(CloseCode([0; 2], 0));
        }
        self.message_bytes += u64::from(!is_control);
        Some(Frame {
            is_close,
            is_control,
            mask: mask.try_into().unwrap_or_default(),
            passed: 0,
            length: match length_size {
                0 => u64::from(second & !MASKED),
                _ => length.iter().fold(0, |length, byte| length << 8 | u64::from(*byte)),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(first: u8, payload: &[u8], mask: Option<[u8; 4]>) -> Vec<u8> {
        let masked = if mask.is_some() { MASKED } else { 0 };
        let mut frame = vec![first];
        match payload.len() {
            short @ 0..=125 => frame.push(masked | short as u8),
            middle @ 126..=0xffff => {
                frame.push(masked | 126);
                frame.extend((middle as u16).to_be_bytes());
            }
            long => {
                frame.push(masked | 127);
                frame.extend((long as u64).to_be_bytes());
            }
        }
        frame.extend(mask.into_iter().flatten());
        let mask = mask.unwrap_or_default();
        frame.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ mask[at % 4]));
        frame
    }

    #[test]
    fn the_ends_of_frames_of_every_length_are_found_in_pieces_of_every_size() {
        for mask in [None, Some([1, 2, 3, 4])] {
            let frames: Vec<Vec<u8>> =
                [(0x81, 0), (0x01, 1), (0x89, 3), (0x80, 125), (0x82, 126), (0xc1, 65_535), (0x8a, 0), (0x82, 65_536)]
                    .into_iter()
                    .map(|(first, length)| frame(first, &vec![7; length], mask))
                    .collect();
            for size in [1, 2, 3, 7, 1_000, 200_000] {
                let mut position = FramePosition::default();
                for frame in &frames {
                    assert!(position.is_between_frames());
                    for piece in frame.chunks(size) {
                        assert_eq!(position.pass_frame(piece), piece.len());
                        assert!(position.close().is_none());
                    }
                }
                assert!(position.is_between_frames());
                let messages = 6 + 1 + 125 + 126 + 65_535 + 65_536;
                assert_eq!(position.message_bytes(), messages);
                let mut whole = FramePosition::default();
                frames.concat().chunks(size).for_each(|piece| whole.pass(piece));
                assert!(whole.is_between_frames());
                assert_eq!(whole.message_bytes(), messages);
            }
        }
    }

    #[test]
    fn a_frame_ends_where_the_next_one_begins() {
        let (first, second) = (frame(0x81, b"abc", None), frame(0x82, b"de", None));
        let mut position = FramePosition::default();
        position.pass(&first[..2]);
        assert!(!position.is_between_frames());
        assert_eq!(position.pass_frame(&[&first[2..], &second[..]].concat()), 3);
        assert!(position.is_between_frames());
    }

    #[test]
    fn the_code_of_a_close_frame_is_read_once_it_is_complete() {
        for mask in [None, Some([9, 8, 7, 6])] {
            for (payload, code) in [(&[][..], None), (&[3, 233][..], Some(1001)), (b"\x03\xf3why", Some(1011))] {
                let frame = frame(0x88, payload, mask);
                let mut position = FramePosition::default();
                for (at, byte) in frame.iter().enumerate() {
                    position.pass(&[*byte]);
                    assert_eq!(position.close().is_some(), at + 1 == frame.len());
                }
                assert_eq!(position.close().unwrap().get(), code);
            }
        }
    }

    #[test]
    fn a_length_that_no_payload_has_costs_nothing() {
        let mut position = FramePosition::default();
        position.pass(&[0x82, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        position.pass(&[0; 1_000]);
        assert!(!position.is_between_frames());
    }
}
