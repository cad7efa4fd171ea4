//! Instructions that look at a single value. Most are quick; those that read long texts, many children or a whole
//! structure can be suspended.

use super::{
    Context,
    content::ContentCheck,
    frame::{Frame, Step},
    length::{Length, count_code_points, quick_length},
    scratch::{LeafWork, Scratch},
};
use crate::{
    format::FormatCheck,
    number,
    pattern::Match,
    program::{Block, EnumTable, Instruction, type_bits},
    tape::{Node, NodeKind, Tape, head_of},
    value_hash::{self, NodeHasher, UniquenessCheck},
};
use std::{cmp::Ordering, task::Poll};

/// Texts of up to this many bytes are read at once.
pub(super) const MAX_QUICK_BYTES: usize = 2048;
/// Numbers of more bytes than this are too expensive.
const MAX_NUMBER_BYTES: usize = 256 << 10;
/// Children that are counted at once.
const MAX_QUICK_CHILDREN: u32 = 1024;
/// Units for the hash of a number or a text and its look-up.
const HASH_COST: u64 = 6;
/// Bytes that are counted or compared for one unit.
const BYTES_PER_UNIT: u64 = 64;
/// Bytes of a number that are compared for one unit.
const DIGITS_PER_UNIT: u64 = 4;
/// Bytes of a text that are counted between two looks at the fuel.
const COUNTED_BLOCK: usize = 64 << 10;

/// Returns whether a block without subschemas holds, or `None` if it needs a frame.
#[inline(always)]
pub(super) fn quick_block(context: &mut Context<'_>, node: Node, block: &Block) -> Option<bool> {
    context.fuel.charge(1);
    match block.summary.verdict(context.tape.entry(node)) {
        None => quick_code(context, node, block),
        verdict => verdict,
    }
}

fn quick_code(context: &mut Context<'_>, node: Node, block: &Block) -> Option<bool> {
    let kind = context.tape.kind(node);
    let code = context.program.open_code(block, kind)?;
    context.fuel.charge(code.len() as u64);
    for instruction in code {
        if !quick(context, node, kind, *instruction)? {
            return Some(false);
        }
    }
    Some(true)
}

/// Returns whether an instruction holds, or `None` if that may take long.
#[inline(always)]
pub(super) fn quick(context: &mut Context<'_>, node: Node, kind: NodeKind, instruction: Instruction) -> Option<bool> {
    let (program, tape) = (context.program, context.tape);
    Some(match instruction {
        Instruction::Never => false,
        Instruction::Type { bits, by_value } => quick_type(tape, node, kind, bits, by_value)?,
        Instruction::Enum { table, .. } => return quick_enum(context, node, kind, program.enums.get(table as usize)?),
        Instruction::Minimum(bound) => quick_compare(context, node, kind, bound, Ordering::is_ge)?,
        Instruction::Maximum(bound) => quick_compare(context, node, kind, bound, Ordering::is_le)?,
        Instruction::ExclusiveMinimum(bound) => quick_compare(context, node, kind, bound, Ordering::is_gt)?,
        Instruction::ExclusiveMaximum(bound) => quick_compare(context, node, kind, bound, Ordering::is_lt)?,
        Instruction::MultipleOf(divisor) => {
            if !kind.is_number() {
                return Some(true);
            }
            let text = short_number(context, node)?;
            program.divisors.get(divisor as usize)?.divides(std::str::from_utf8(text).ok()?)
        }
        Instruction::MinLength(min) => {
            // A code point has one to four bytes, and with an escape up to twelve.
            !kind.is_string()
                || tape.raw_length(node) / 12 >= min as usize
                || quick_length(tape, node, kind, Length::Min(min))?
        }
        Instruction::MaxLength(max) => {
            !kind.is_string()
                || tape.raw_length(node) <= max as usize
                || quick_length(tape, node, kind, Length::Max(max))?
        }
        Instruction::MinItems(min) => kind != NodeKind::Array || count_children(context, node, 1, min)? >= min,
        Instruction::MaxItems(max) => {
            kind != NodeKind::Array || count_children(context, node, 1, max.saturating_add(1))? <= max
        }
        Instruction::MinProperties(min) => kind != NodeKind::Object || count_children(context, node, 2, min)? >= min,
        Instruction::MaxProperties(max) => {
            kind != NodeKind::Object || count_children(context, node, 2, max.saturating_add(1))? <= max
        }
        Instruction::Pattern(pattern) => {
            if !kind.is_string() {
                return Some(true);
            }
            let text = short_text(context, node)?;
            program.patterns.get(pattern as usize)?.quick_match(&text, context.fuel)?
        }
        Instruction::Format(format) => {
            if !kind.is_string() {
                return Some(true);
            }
            let text = short_text(context, node)?;
            context.fuel.charge(1 + text.len() as u64 / 2);
            format.is_valid(&text)
        }
        Instruction::Content { .. } if !kind.is_string() => true,
        _ => return None,
    })
}

/// Returns a text that is short, decoded.
#[inline]
pub(super) fn short_text<'t>(context: &mut Context<'t>, node: Node) -> Option<std::borrow::Cow<'t, str>> {
    let tape = context.tape;
    (tape.raw_length(node) <= MAX_QUICK_BYTES).then(|| tape.text(node))
}

/// Returns the text of a number if it is short.
#[inline]
fn short_number<'t>(context: &mut Context<'t>, node: Node) -> Option<&'t [u8]> {
    let tape = context.tape;
    let length = tape.raw_length(node);
    if length > MAX_QUICK_BYTES {
        return None;
    }
    context.fuel.charge_bytes(length, DIGITS_PER_UNIT);
    Some(tape.raw_bytes(node))
}

#[inline]
fn quick_type(tape: &Tape, node: Node, kind: NodeKind, bits: u8, by_value: bool) -> Option<bool> {
    let has = |wanted: u8| bits & wanted != 0;
    Some(match kind {
        NodeKind::Null => has(type_bits::NULL),
        NodeKind::False | NodeKind::True => has(type_bits::BOOLEAN),
        NodeKind::Integer => has(type_bits::INTEGER | type_bits::NUMBER),
        NodeKind::Number if has(type_bits::NUMBER) => true,
        NodeKind::Number if has(type_bits::INTEGER) && by_value => {
            if tape.raw_length(node) > MAX_QUICK_BYTES {
                return None;
            }
            number::is_integer(tape.raw(node))
        }
        NodeKind::Number => false,
        NodeKind::String | NodeKind::EscapedString => has(type_bits::STRING),
        NodeKind::Array => has(type_bits::ARRAY),
        NodeKind::Object => has(type_bits::OBJECT),
    })
}

fn quick_enum(context: &mut Context<'_>, node: Node, kind: NodeKind, table: &EnumTable) -> Option<bool> {
    let tape = context.tape;
    Some(match kind {
        NodeKind::Null => table.has_null,
        NodeKind::False => table.has_false,
        NodeKind::True => table.has_true,
        NodeKind::Integer | NodeKind::Number => {
            if table.numbers.is_empty() {
                return Some(false);
            }
            short_number(context, node)?;
            context.fuel.charge(HASH_COST);
            table.numbers.contains(&value_hash::hash_scalar(tape, node)?)
        }
        NodeKind::String => {
            tape.raw_length(node) <= table.max_string && {
                context.fuel.charge_bytes(tape.raw_length(node), BYTES_PER_UNIT);
                context.fuel.charge(if table.strings.is_empty() { 0 } else { HASH_COST });
                let (head, text) = tape.scalar(tape.entry(node));
                has_string(table, head, text)
            }
        }
        // An escape of six bytes can stand for one.
        NodeKind::EscapedString => {
            tape.raw_length(node) / 6 <= table.max_string && {
                let text = short_text(context, node)?;
                context.fuel.charge_bytes(text.len(), 8);
                has_string(table, head_of(text.as_bytes()), text.as_bytes())
            }
        }
        NodeKind::Array if table.has_arrays => return None,
        NodeKind::Object if table.has_objects => return None,
        NodeKind::Array | NodeKind::Object => false,
    })
}

#[inline]
fn has_string(table: &EnumTable, head: u64, text: &[u8]) -> bool {
    if table.strings.is_empty() {
        table.few_strings.iter().any(|known| known.is(head, text))
    } else {
        table.strings.contains(text)
    }
}

fn quick_compare(
    context: &mut Context<'_>,
    node: Node,
    kind: NodeKind,
    bound: u32,
    holds: impl Fn(Ordering) -> bool,
) -> Option<bool> {
    if !kind.is_number() {
        return Some(true);
    }
    let text = short_number(context, node)?;
    let bound = context.program.bounds.get(bound as usize)?;
    let ordering = bound.compare_short(text).unwrap_or_else(|| bound.compare_text(context.tape.raw(node)));
    Some(holds(ordering))
}

/// Counts children up to `enough`, each of `entries` entries or subtrees. Where the number of entries decides, the
/// result is on the same side of `enough` as the number of children.
fn count_children(context: &mut Context<'_>, node: Node, entries: u32, enough: u32) -> Option<u32> {
    let (tape, end) = (context.tape, context.tape.end(node));
    let most = (end.index() - tape.first_child(node).index()) / entries;
    if most < enough || enough <= 1 {
        return Some(most);
    }
    let (mut child, mut count) = (tape.first_child(node), 0);
    while child < end && count < enough {
        if count >= MAX_QUICK_CHILDREN {
            return None;
        }
        child = next_child(tape, child, entries);
        count += 1;
    }
    context.fuel.charge(u64::from(count) / 4);
    Some(count)
}

fn next_child(tape: &Tape, child: Node, entries: u32) -> Node {
    if entries == 1 { tape.next_sibling(child) } else { tape.next_sibling(tape.value_of(child)) }
}

impl Scratch {
    /// Runs a step of an instruction without subschemas, and of `uniqueItems`.
    pub(super) fn step_leaf(&mut self, context: &mut Context<'_>, frame: &mut Frame, instruction: Instruction) -> Step {
        if !std::mem::replace(&mut frame.flag, true)
            && let Some(holds) = quick(context, frame.node, context.tape.kind(frame.node), instruction)
        {
            return verdict(holds);
        }
        let step = self.step_long_leaf(context, frame, instruction);
        if !matches!(step, Step::Pending) {
            self.work = LeafWork::None;
            self.decoded = None;
        }
        step
    }

    fn step_long_leaf(&mut self, context: &mut Context<'_>, frame: &mut Frame, instruction: Instruction) -> Step {
        let node = frame.node;
        match instruction {
            Instruction::Enum { table, .. } => self.step_enum(context, node, table),
            Instruction::MinLength(min) => self.step_length(context, frame, Length::Min(min)),
            Instruction::MaxLength(max) => self.step_length(context, frame, Length::Max(max)),
            Instruction::MinItems(bound) => step_count(context, frame, 1, Length::Min(bound)),
            Instruction::MaxItems(bound) => step_count(context, frame, 1, Length::Max(bound)),
            Instruction::MinProperties(bound) => step_count(context, frame, 2, Length::Min(bound)),
            Instruction::MaxProperties(bound) => step_count(context, frame, 2, Length::Max(bound)),
            Instruction::Pattern(pattern) => match self.match_pattern(context, node, pattern) {
                Poll::Pending => Step::Pending,
                Poll::Ready(Ok(holds)) => verdict(holds),
                Poll::Ready(Err(_)) => Step::OutOfMemory,
            },
            Instruction::Format(format) => {
                let Some(text) = self.text(context, node) else { return Step::Pending };
                let mut check = match std::mem::take(&mut self.work) {
                    LeafWork::Format(check) => check,
                    _ => FormatCheck::new(format),
                };
                let result = check.resume(text.of(self, context), context.fuel);
                self.work = LeafWork::Format(check);
                result.map_or_pending(verdict)
            }
            Instruction::Content { base64, json } => {
                let Some(text) = self.text(context, node) else { return Step::Pending };
                let mut check = match std::mem::take(&mut self.work) {
                    LeafWork::Content(check) => check,
                    _ => ContentCheck::new(base64, json),
                };
                let result = check.resume(text.of(self, context), context.fuel);
                self.work = LeafWork::Content(check);
                result.map_or_pending(verdict)
            }
            Instruction::UniqueItems => self.step_unique(context, node),
            _ => step_long_number(context, node, instruction),
        }
    }

    /// Decodes a text; `None` if the slice has ended before. A text without escapes needs no decoding.
    fn text(&mut self, context: &mut Context<'_>, node: Node) -> Option<TextPlace> {
        if context.tape.kind(node) == NodeKind::String {
            return Some(TextPlace::OfTape(node));
        }
        if self.decoded != Some(node) {
            self.decoded = Some(node);
            self.decoder.restart();
        }
        self.decoder.resume(context.tape, node, context.fuel).is_ready().then_some(TextPlace::Decoded)
    }

    /// Matches a text, also the name of a member, against a pattern.
    pub(super) fn match_pattern(
        &mut self,
        context: &mut Context<'_>,
        node: Node,
        pattern: u32,
    ) -> Poll<Result<bool, crate::pattern::OutOfMemory>> {
        let Some(pattern) = context.program.patterns.get(pattern as usize) else { return Poll::Ready(Ok(true)) };
        if matches!(self.work, LeafWork::None)
            && self.decoded != Some(node)
            && let Some(text) = short_text(context, node)
            && let Some(holds) = pattern.quick_match(&text, context.fuel)
        {
            return Poll::Ready(Ok(holds));
        }
        let Some(text) = self.text(context, node) else { return Poll::Pending };
        let mut search = match std::mem::take(&mut self.work) {
            LeafWork::Match(search) => search,
            _ => Match::start(pattern),
        };
        let result = search.resume(pattern, text.of(self, context), context.fuel);
        if result.is_pending() {
            self.work = LeafWork::Match(search);
        } else {
            self.decoded = None;
        }
        result
    }

    fn step_enum(&mut self, context: &mut Context<'_>, node: Node, table: u32) -> Step {
        let Some(table) = context.program.enums.get(table as usize) else { return Step::Pass };
        if context.tape.kind(node).is_string() {
            let Some(text) = self.text(context, node) else { return Step::Pending };
            let text = text.of(self, context).as_bytes();
            return verdict(has_string(table, head_of(text), text));
        }
        let mut hasher = match std::mem::take(&mut self.work) {
            LeafWork::Hash(hasher) => hasher,
            _ => NodeHasher::start(node),
        };
        match hasher.resume(context.tape, context.fuel) {
            Poll::Ready(hash) => verdict(table.structures.contains(&hash) || table.numbers.contains(&hash)),
            Poll::Pending => {
                self.work = LeafWork::Hash(hasher);
                Step::Pending
            }
        }
    }

    fn step_unique(&mut self, context: &mut Context<'_>, node: Node) -> Step {
        if context.tape.kind(node) != NodeKind::Array {
            return Step::Pass;
        }
        let mut check = match std::mem::take(&mut self.work) {
            LeafWork::Unique(check) => check,
            _ => UniquenessCheck::start(node, super::scratch_limit(context.tape).saturating_sub(self.memory())),
        };
        match check.resume(context.tape, context.fuel) {
            Poll::Ready(Ok(is_unique)) => verdict(is_unique),
            Poll::Ready(Err(_)) => Step::OutOfMemory,
            Poll::Pending => {
                self.work = LeafWork::Unique(check);
                Step::Pending
            }
        }
    }

    /// Counts the code points of a long text: `cursor` is the byte after the counted ones, `count` their number.
    fn step_length(&mut self, context: &mut Context<'_>, frame: &mut Frame, bound: Length) -> Step {
        let Some(text) = self.text(context, frame.node) else { return Step::Pending };
        loop {
            let bytes = match text {
                TextPlace::OfTape(node) => context.tape.raw_bytes(node),
                TextPlace::Decoded => self.decoder.text().as_bytes(),
            };
            let rest = bytes.get(frame.cursor as usize..).unwrap_or_default();
            if rest.is_empty() {
                return verdict(bound.holds(frame.count as usize));
            }
            if context.fuel.is_spent() {
                return Step::Pending;
            }
            let block = rest.get(..COUNTED_BLOCK).unwrap_or(rest);
            context.fuel.charge_bytes(block.len(), BYTES_PER_UNIT);
            frame.count += u32::try_from(count_code_points(block)).unwrap_or(u32::MAX);
            frame.cursor += u32::try_from(block.len()).unwrap_or(u32::MAX);
        }
    }
}

/// Counts many children: `cursor` is the next one, `count` their number.
fn step_count(context: &mut Context<'_>, frame: &mut Frame, entries: u32, bound: Length) -> Step {
    let tape = context.tape;
    let end = tape.end(frame.node);
    if frame.cursor == 0 {
        frame.cursor = tape.first_child(frame.node).index();
    }
    while frame.cursor < end.index() {
        if frame.count.is_multiple_of(MAX_QUICK_CHILDREN) {
            if context.fuel.is_spent() {
                return Step::Pending;
            }
            context.fuel.charge(u64::from(MAX_QUICK_CHILDREN) / 4);
        }
        frame.cursor = next_child(tape, Node::from_index(frame.cursor), entries).index();
        frame.count += 1;
    }
    verdict(bound.holds(frame.count as usize))
}

/// Compares a number with many digits.
fn step_long_number(context: &mut Context<'_>, node: Node, instruction: Instruction) -> Step {
    let (program, tape) = (context.program, context.tape);
    let length = tape.raw_length(node);
    if length > MAX_NUMBER_BYTES {
        return Step::OutOfFuel;
    }
    context.fuel.charge_bytes(length, DIGITS_PER_UNIT);
    let text = tape.raw(node);
    let compare =
        |bound: u32| program.bounds.get(bound as usize).map_or(Ordering::Equal, |bound| bound.compare_text(text));
    verdict(match instruction {
        Instruction::Type { .. } => number::is_integer(text),
        Instruction::Minimum(bound) => compare(bound).is_ge(),
        Instruction::Maximum(bound) => compare(bound).is_le(),
        Instruction::ExclusiveMinimum(bound) => compare(bound).is_gt(),
        Instruction::ExclusiveMaximum(bound) => compare(bound).is_lt(),
        Instruction::MultipleOf(divisor) => {
            program.divisors.get(divisor as usize).is_none_or(|divisor| divisor.divides(text))
        }
        _ => true,
    })
}

/// Where a decoded text is.
#[derive(Clone, Copy)]
enum TextPlace {
    OfTape(Node),
    Decoded,
}

impl TextPlace {
    fn of<'t>(self, scratch: &'t Scratch, context: &Context<'t>) -> &'t str {
        match self {
            Self::OfTape(node) => context.tape.raw(node),
            Self::Decoded => scratch.decoder.text(),
        }
    }
}

fn verdict(holds: bool) -> Step {
    if holds { Step::Pass } else { Step::Fail }
}

trait PollStep<T> {
    fn map_or_pending(self, then: impl FnOnce(T) -> Step) -> Step;
}

impl<T> PollStep<T> for Poll<T> {
    fn map_or_pending(self, then: impl FnOnce(T) -> Step) -> Step {
        match self {
            Poll::Ready(value) => then(value),
            Poll::Pending => Step::Pending,
        }
    }
}
