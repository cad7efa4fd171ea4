//! The pieces of a vocabulary as a hash table in one block of bytes: the one of the built-in model is compiled into the
//! program and is used where it lies, so that a start neither parses nor allocates it.
//!
//! The block has numbers of 32 bits in little-endian order: the number of slots, which is a power of two, the length of
//! the longest piece in bytes, and the slots. A slot is 0 or 1 more than the offset of a record. A record is an id (32
//! bits), the kind (8 bits), the length of the text (16 bits), and the text.

use std::{borrow::Cow, collections::HashMap};

/// Where a piece may stand in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceKind {
    /// It begins a word.
    WordStart = 0,
    /// It continues a word; its text is without `##`.
    Continuation = 1,
}

/// The pieces with their ids.
pub(super) struct PieceTable {
    block: Cow<'static, [u8]>,
    /// The number of slots, less 1.
    mask: u32,
    max_piece_bytes: usize,
}

/// Length of the two numbers before the slots.
const HEADER_BYTES: usize = 8;
/// Length of a record before its text.
const RECORD_HEADER_BYTES: usize = 7;

impl PieceTable {
    /// Uses a block that [`build_block`] has written.
    ///
    /// # Errors
    /// The block has another form.
    pub(super) fn from_block(block: Cow<'static, [u8]>) -> Result<Self, String> {
        let slots = read_u32(&block, 0).filter(|slots| slots.is_power_of_two());
        let header = slots.zip(read_u32(&block, 4)).filter(|(slots, _)| block.len() >= slots_end(*slots));
        let (slots, max_piece_bytes) = header.ok_or("the table of pieces is damaged")?;
        Ok(Self { block, mask: slots - 1, max_piece_bytes: max_piece_bytes as usize })
    }

    /// Builds the table of a vocabulary, in which `##` marks continuations.
    ///
    /// # Errors
    /// A piece is too long, or there are too many.
    pub(super) fn build(vocabulary: &HashMap<String, u32>) -> Result<Self, String> {
        Self::from_block(Cow::Owned(build_block(vocabulary)?))
    }

    /// Length of the longest piece in bytes.
    pub(super) fn max_piece_bytes(&self) -> usize {
        self.max_piece_bytes
    }

    /// Returns the id of a piece.
    pub(super) fn get(&self, kind: PieceKind, text: &str) -> Option<u32> {
        let first = hash(kind, text);
        for step in 0..=self.mask {
            let slot = first.wrapping_add(step) & self.mask;
            let at = read_u32(&self.block, HEADER_BYTES + slot as usize * 4)?.checked_sub(1)? as usize;
            let [id @ .., record_kind, low, high] = *self.block.get(at..)?.first_chunk::<RECORD_HEADER_BYTES>()?;
            let is_same = record_kind == kind as u8
                && usize::from(u16::from_le_bytes([low, high])) == text.len()
                && self.block.get(at + RECORD_HEADER_BYTES..)?.starts_with(text.as_bytes());
            if is_same {
                return Some(u32::from_le_bytes(id));
            }
        }
        None
    }
}

/// Writes the block of a vocabulary. Equal vocabularies have equal blocks.
///
/// # Errors
/// A piece is too long, or there are too many.
pub(super) fn build_block(vocabulary: &HashMap<String, u32>) -> Result<Vec<u8>, String> {
    let mut pieces: Vec<(u32, PieceKind, &str)> = vocabulary.iter().map(|(piece, id)| split(piece, *id)).collect();
    pieces.sort_unstable_by_key(|(id, kind, text)| (*id, *kind as u8, *text));
    let too_large = || "tokenizer.json has too many or too long pieces".to_owned();
    let slots = u32::try_from(pieces.len().saturating_mul(2).next_power_of_two()).map_err(|_| too_large())?;
    let longest = vocabulary.keys().map(String::len).max().unwrap_or_default();
    let mut block = vec![0; slots_end(slots)];
    write_u32(&mut block, 0, slots);
    write_u32(&mut block, 4, u32::try_from(longest).map_err(|_| too_large())?);
    for (id, kind, text) in pieces {
        let next = u32::try_from(block.len() + 1).map_err(|_| too_large())?;
        let mut slot = hash(kind, text) & (slots - 1);
        while read_u32(&block, HEADER_BYTES + slot as usize * 4) != Some(0) {
            slot = slot.wrapping_add(1) & (slots - 1);
        }
        write_u32(&mut block, HEADER_BYTES + slot as usize * 4, next);
        block.extend(id.to_le_bytes());
        block.push(kind as u8);
        block.extend(u16::try_from(text.len()).map_err(|_| too_large())?.to_le_bytes());
        block.extend(text.as_bytes());
    }
    Ok(block)
}

pub(super) fn split(piece: &str, id: u32) -> (u32, PieceKind, &str) {
    match piece.strip_prefix("##") {
        Some(tail) if !tail.is_empty() => (id, PieceKind::Continuation, tail),
        _ => (id, PieceKind::WordStart, piece),
    }
}

fn slots_end(slots: u32) -> usize {
    HEADER_BYTES + slots as usize * 4
}

fn read_u32(block: &[u8], at: usize) -> Option<u32> {
    block.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn write_u32(block: &mut [u8], at: usize, number: u32) {
    if let Some(bytes) = block.get_mut(at..at + 4) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
}

/// FNV-1a. The table has half as many pieces as slots at most, and the pieces of a folder are the operator's.
fn hash(kind: PieceKind, text: &str) -> u32 {
    let bytes = text.bytes().chain([kind as u8]);
    bytes.fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
