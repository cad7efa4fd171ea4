//! What a check holds beside its frames.

use super::{
    Context,
    bit_set::BitSet,
    content::ContentCheck,
    frame::{Applied, Frame, Step},
    leaf,
    marks::MarkWalk,
    memo::Memo,
    violation::{self, Detail, Reason},
};
use crate::{
    format::FormatCheck,
    pattern::Match,
    program::{BlockId, Instruction},
    tape::{Node, TextDecoder},
    value_hash::{NodeHasher, UniquenessCheck},
};
use std::collections::HashSet;

/// Units for a look into the memo, which is mostly not in the processor's cache.
pub(super) const MEMO_COST: u64 = 4;
/// Alternatives whose reasons are named.
pub(super) const MAX_REASONS: usize = 4;

/// Work within one instruction of the last frame that can be suspended.
#[derive(Debug, Default)]
pub(super) enum LeafWork {
    #[default]
    None,
    Hash(NodeHasher),
    Unique(UniquenessCheck),
    Match(Match),
    Format(FormatCheck),
    Content(ContentCheck),
}

/// What an instruction of the frame at `depth` has found while it records violations.
#[derive(Debug)]
pub(super) struct Findings {
    pub(super) depth: usize,
    /// Names of the table that were found, or the presence of names.
    pub(super) seen: BitSet,
    pub(super) unexpected: Vec<Node>,
}

/// The state of a check beside its frames. Each stack has at most one entry for each frame.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) memo: Memo,
    /// Whether `memo` is in use.
    pub(super) memorises: bool,
    pub(super) work: LeafWork,
    /// The decoded text of the value at hand, if it is long and has escapes.
    pub(super) decoder: TextDecoder,
    pub(super) decoded: Option<Node>,
    pub(super) findings: Vec<Findings>,
    pub(super) walks: Vec<MarkWalk>,
    /// What the next violation is about.
    pub(super) details: Vec<Detail>,
    /// The frame whose alternatives give reasons.
    captures: Option<usize>,
    last_reason: Option<Reason>,
    pub(super) reasons: Vec<Reason>,
    /// Pairs whose violations are recorded.
    collected: HashSet<(Node, BlockId)>,
    /// Whether a block that is applied now gives the reason why it fails.
    pub(super) gives_reason: bool,
    is_second_pass: bool,
}

impl Scratch {
    pub(super) fn memory(&self) -> usize {
        let work = match &self.work {
            LeafWork::Unique(check) => check.memory(),
            LeafWork::Content(check) => check.memory(),
            _ => 0,
        };
        let findings: usize = self.findings.iter().map(|of_frame| of_frame.seen.memory() + 64).sum();
        let walks: usize = self.walks.iter().map(MarkWalk::memory).sum();
        self.memo.memory() + work + self.decoder.memory() + findings + walks + self.collected.capacity() * 12
    }

    pub(super) fn begin_violations(&mut self) {
        self.is_second_pass = true;
        self.work = LeafWork::None;
        self.decoded = None;
        self.findings.clear();
        self.walks.clear();
        self.details.clear();
    }

    /// Applies a block to a value, without a frame if that is possible.
    #[inline]
    pub(super) fn apply(&mut self, context: &mut Context<'_>, node: Node, block: BlockId, collects: bool) -> Applied {
        if block == BlockId::TRUE {
            return Applied::Verdict(true);
        }
        let compiled = context.program.block(block);
        if compiled.summary.is_leaf {
            return match leaf::quick_block(context, node, &compiled) {
                Some(true) => Applied::Verdict(true),
                Some(false) if !collects && !self.gives_reason => Applied::Verdict(false),
                _ => Applied::Push,
            };
        }
        if self.memorises {
            context.fuel.charge(MEMO_COST);
            match self.memo.get(node, block) {
                Some(true) => return Applied::Verdict(true),
                Some(false) if self.gives_reason => {}
                Some(false) if !collects => return Applied::Verdict(false),
                Some(false) if self.collected.contains(&(node, block)) => return Applied::Verdict(false),
                _ => {}
            }
        }
        Applied::Push
    }

    /// Runs a step of the current instruction of `frame`, which is the last of `depth` frames. `child` is the verdict of
    /// the block that the instruction pushed before.
    #[inline]
    pub(super) fn step(
        &mut self,
        context: &mut Context<'_>,
        frame: &mut Frame,
        depth: usize,
        instruction: Instruction,
        child: Option<bool>,
    ) -> Step {
        self.gives_reason = frame.explains;
        match instruction {
            Instruction::Members(table) => self.step_members(context, frame, depth, table, child),
            Instruction::PropertyNames(block) => self.step_names(context, frame, depth, block, child),
            Instruction::Dependencies(table) => self.step_dependencies(context, frame, depth, table, child),
            Instruction::Items { prefix, rest, .. } => self.step_items(context, frame, prefix, rest, child),
            Instruction::Contains(rule) => self.step_contains(context, frame, rule, child),
            Instruction::Ref(block) => self.step_ref(context, frame, block, child),
            Instruction::AllOf(list) => self.step_all_of(context, frame, list, child),
            Instruction::AnyOf(list) => self.step_alternatives(context, frame, depth, list, child, true),
            Instruction::OneOf(list) => self.step_alternatives(context, frame, depth, list, child, false),
            Instruction::Not(block) => self.step_not(context, frame, block, child),
            Instruction::If(rule) => self.step_if(context, frame, rule, child),
            Instruction::UnevaluatedItems(block) => self.step_unevaluated(context, frame, depth, block, true, child),
            Instruction::UnevaluatedProperties(block) => {
                self.step_unevaluated(context, frame, depth, block, false, child)
            }
            leaf => self.step_leaf(context, frame, leaf),
        }
    }

    /// Forgets what belongs to a frame that ends, and memorises its verdict.
    pub(super) fn end_frame(&mut self, context: &mut Context<'_>, frame: &Frame, depth: usize, verdict: bool) {
        if self.memorises {
            context.fuel.charge(MEMO_COST);
            self.memo.insert(frame.node, frame.block, verdict);
            if frame.collects && !verdict {
                self.collected.insert((frame.node, frame.block));
            }
        }
        while self.findings.last().is_some_and(|of_frame| of_frame.depth >= depth) {
            self.findings.pop();
        }
        while self.walks.last().is_some_and(|walk| walk.depth >= depth) {
            self.walks.pop();
        }
        if self.captures.is_some_and(|capturing| capturing >= depth) {
            self.captures = None;
        }
    }

    /// Has the frames above the one at `depth` give the reason why they fail.
    pub(super) fn begin_capture(&mut self, frame: &Frame, depth: usize) {
        if self.is_second_pass && frame.collects {
            self.captures = Some(depth);
            self.last_reason = None;
            self.gives_reason = true;
        }
    }

    /// Ends the capture of a frame, and returns the last reason.
    pub(super) fn end_capture(&mut self, frame: &Frame) -> Option<Reason> {
        if !frame.collects {
            return None;
        }
        self.captures = None;
        self.last_reason.take()
    }

    /// Returns whether a frame has noted why it fails since the capture began.
    pub(super) fn has_reason(&self) -> bool {
        self.last_reason.is_some()
    }

    /// Notes why the last frame fails.
    pub(super) fn note_reason(&mut self, context: &mut Context<'_>, frames: &[Frame], instruction: Instruction) {
        let (Some(capturing), Some(frame)) = (self.captures, frames.last()) else { return };
        context.fuel.charge(frames.len().saturating_sub(capturing) as u64);
        let base = capturing.saturating_sub(1);
        let pointer = violation::pointer(context.tape, frames, base);
        let position = context.program.block(frame.block).position;
        let detail = self.details.drain(..).next().unwrap_or(Detail::None);
        self.last_reason = Some(Reason { pointer, node: frame.node, position, instruction, detail });
    }

    /// Takes what the violation of the frame at `depth` is about.
    pub(super) fn take_details(&mut self, depth: usize) -> Vec<Detail> {
        self.findings.retain(|of_frame| of_frame.depth != depth);
        if self.details.is_empty() { vec![Detail::None] } else { std::mem::take(&mut self.details) }
    }
}
