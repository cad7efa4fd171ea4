//! A body that was parsed once, for everything that reads it, and the memory that it takes.

use crate::{
    fault::{Fault, FaultCode, FaultRule, Result, Violation},
    values::MaxShare,
};
use bytes::Bytes;
use json_schema::{
    Tape,
    fuel::Fuel,
    tape::{Node, NodeKind, TapeBounds, TapeError, TapeParser},
};
use std::{ops::Deref, task::Poll};

/// Memory that is not counted: that of short bodies, whose number other limits bound.
const UNCOUNTED_BYTES: usize = 16 << 10;

/// Counts the memory that belongs to one body against a caller's share, until it is dropped.
pub trait MemoryAccount: Send {
    /// Counts at least so many bytes.
    ///
    /// # Errors
    /// The share of the caller, or the memory of all callers, is used up.
    fn grow_to(&mut self, bytes: usize) -> Result<()>;
}

/// Opens the accounts of one caller.
pub trait MemoryAccounts: Sync {
    /// Opens an account for one body.
    fn open(&self) -> Box<dyn MemoryAccount>;

    /// Returns the share of each bound that one client may take.
    fn max_share(&self) -> MaxShare;
}

/// No limit, for bodies of operators.
impl MemoryAccounts for () {
    fn open(&self) -> Box<dyn MemoryAccount> {
        Box::new(())
    }

    fn max_share(&self) -> MaxShare {
        MaxShare::UNLIMITED
    }
}

impl MemoryAccount for () {
    fn grow_to(&mut self, _: usize) -> Result<()> {
        Ok(())
    }
}

/// The account of a body, which is opened when the body takes more memory than a short one.
#[derive(Default)]
pub(super) struct BodyMemory(Option<Box<dyn MemoryAccount>>);

impl BodyMemory {
    /// Counts `bytes`, with an account of `accounts` if there is none yet.
    pub(super) fn count(&mut self, bytes: usize, accounts: &dyn MemoryAccounts) -> Result<()> {
        if bytes <= UNCOUNTED_BYTES {
            return Ok(());
        }
        self.0.get_or_insert_with(|| accounts.open()).grow_to(bytes)
    }

    /// Opens the account, so that the memory can be counted where there are no `accounts`.
    pub(super) fn open(&mut self, accounts: &dyn MemoryAccounts) {
        self.0.get_or_insert_with(|| accounts.open());
    }

    /// Counts `bytes`, if there is an account.
    pub(super) fn grow_to(&mut self, bytes: usize) -> Result<()> {
        self.0.as_mut().filter(|_| bytes > UNCOUNTED_BYTES).map_or(Ok(()), |account| account.grow_to(bytes))
    }
}

impl std::fmt::Debug for BodyMemory {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_tuple("BodyMemory").field(&self.0.is_some()).finish()
    }
}

/// A parsed body.
#[derive(Debug)]
pub struct BodyTape {
    pub(super) tape: Tape,
    pub(super) memory: BodyMemory,
}

impl Deref for BodyTape {
    type Target = Tape;

    fn deref(&self) -> &Tape {
        &self.tape
    }
}

/// Maximum depth of a body. The size is bounded while the body is read from the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonBounds {
    /// Nested arrays and objects; at most 120.
    pub max_depth: u16,
}

impl Default for JsonBounds {
    fn default() -> Self {
        Self { max_depth: 64 }
    }
}

impl From<JsonBounds> for TapeBounds {
    fn from(bounds: JsonBounds) -> Self {
        Self { max_depth: bounds.max_depth }
    }
}

/// Parses one JSON value at once: UTF-8 without a byte order mark, unique names in each object, no trailing data. For
/// short texts, and those of operators.
///
/// # Errors
/// 400 `InvalidInput`, with the position.
pub fn parse_json(text: impl Into<Bytes>, bounds: JsonBounds) -> Result<Tape> {
    let mut parser = TapeParser::new(text.into(), &bounds.into());
    loop {
        if let Poll::Ready(result) = parser.resume(&mut Fuel::new(u64::MAX)) {
            return result.map_err(invalid_json);
        }
    }
}

/// Returns the fault of a text that is no JSON.
pub(super) fn invalid_json(error: TapeError) -> Fault {
    let message = format!("The body is not valid JSON: {}", error.reason);
    Fault::new(FaultCode::InvalidInput, message)
        .with_violations(vec![Violation::new(error.pointer, error.reason)])
        .with_rule(FaultRule::Request)
}

/// Returns the part of a text that a value of its tape has, with the quotes of a string.
pub fn text_of(tape: &Tape, node: Node) -> Bytes {
    let (start, length) = (tape.offset(node), tape.raw_bytes(node).len());
    let range = match tape.kind(node) {
        NodeKind::String | NodeKind::EscapedString => start.saturating_sub(1)..start + length + 1,
        _ => start..start + length,
    };
    let body = tape.body();
    // The tape has ranges of its own text only.
    if range.end <= body.len() { body.slice(range) } else { Bytes::new() }
}
