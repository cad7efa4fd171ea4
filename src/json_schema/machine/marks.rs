//! `unevaluatedItems` and `unevaluatedProperties`: which children a value's other subschemas have evaluated.
//!
//! The walk visits each block that applies to the value once, through those that hold, and marks children in one set of
//! bits, so that the number of paths does not matter. A block whose verdict decides (`anyOf`, `if`) is applied again; the
//! memo bounds what that costs.

use super::{
    Context,
    bit_set::BitSet,
    frame::{Applied, Frame, Step},
    members,
    scratch::Scratch,
    violation::Detail,
};
use crate::{
    program::{BlockId, Instruction},
    tape::{Node, NodeKind},
};
use std::{collections::HashSet, task::Poll};

/// Children that are counted between two looks at the fuel.
const COUNT_BLOCK: u32 = 1024;
/// Names that a violation lists, and one more.
const MAX_UNEXPECTED: usize = 13;

/// The walk of one instruction of the frame at `depth`.
#[derive(Debug)]
pub(super) struct MarkWalk {
    pub(super) depth: usize,
    stage: WalkStage,
    marks: BitSet,
    children: u32,
    visited: HashSet<BlockId>,
    pending: Vec<BlockId>,
    /// The instruction at hand, and the end of its block.
    pc: u32,
    end: u32,
    /// The place within the instruction: number of a branch or child, its entry, and a stage.
    index: u32,
    cursor: u32,
    part: u32,
    names: Option<BitSet>,
    unexpected: Vec<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WalkStage {
    Count,
    Walk,
    Apply,
}

/// What the walk of one instruction came to.
enum Walked {
    /// The instruction is done.
    Next,
    /// All children are evaluated.
    All,
    /// A block must be applied to a value first.
    Push(Node, BlockId),
    Pending,
    OutOfMemory,
}

impl MarkWalk {
    fn new(depth: usize, block: BlockId) -> Self {
        Self {
            depth,
            stage: WalkStage::Count,
            marks: BitSet::default(),
            children: 0,
            visited: HashSet::new(),
            pending: vec![block],
            pc: 0,
            end: 0,
            index: 0,
            cursor: 0,
            part: 0,
            names: None,
            unexpected: Vec::new(),
        }
    }

    pub(super) fn memory(&self) -> usize {
        let names = self.names.as_ref().map_or(0, BitSet::memory);
        size_of::<Self>() + self.marks.memory() + names + self.visited.capacity() * 8 + self.pending.capacity() * 4
    }

    fn next_instruction(&mut self) {
        self.pc += 1;
        (self.index, self.cursor, self.part) = (0, 0, 0);
        self.names = None;
    }
}

impl Scratch {
    /// Runs a step of `unevaluatedItems`, or else `unevaluatedProperties`.
    pub(super) fn step_unevaluated(
        &mut self,
        context: &mut Context<'_>,
        frame: &mut Frame,
        depth: usize,
        block: BlockId,
        of_items: bool,
        child: Option<bool>,
    ) -> Step {
        self.gives_reason = false;
        let kind = if of_items { NodeKind::Array } else { NodeKind::Object };
        if context.tape.kind(frame.node) != kind || block == BlockId::TRUE {
            return Step::Pass;
        }
        // The walk is taken out while it goes on, because blocks that it applies may have walks of their own.
        let walk = self.walks.pop_if(|walk| walk.depth == depth);
        let mut walk = walk.unwrap_or_else(|| MarkWalk::new(depth, frame.block));
        let step = self.go_on(context, frame, &mut walk, block, of_items, child);
        if matches!(step, Step::Pending | Step::Push(..)) {
            self.walks.push(walk);
        }
        step
    }

    fn go_on(
        &mut self,
        context: &mut Context<'_>,
        frame: &mut Frame,
        walk: &mut MarkWalk,
        block: BlockId,
        of_items: bool,
        child: Option<bool>,
    ) -> Step {
        if walk.stage == WalkStage::Count {
            if count_children(context, frame.node, walk, of_items).is_pending() {
                return Step::Pending;
            }
            if walk.children == 0 {
                return Step::Pass;
            }
            context.fuel.charge(u64::from(walk.children) / 512);
            walk.marks = BitSet::with_length(walk.children as usize);
            walk.stage = WalkStage::Walk;
            (walk.cursor, walk.index) = (0, 0);
        }
        let mut verdict = child;
        if walk.stage == WalkStage::Walk {
            match self.walk(context, frame, walk, of_items, verdict.take()) {
                Walked::Next => {}
                Walked::All => return Step::Pass,
                Walked::Push(node, block) => return Step::Push(node, block, false),
                Walked::Pending => return Step::Pending,
                Walked::OutOfMemory => return Step::OutOfMemory,
            }
            walk.stage = WalkStage::Apply;
            walk.visited = HashSet::new();
            (walk.cursor, walk.index) = (context.tape.first_child(frame.node).index(), 0);
        }
        self.apply_to_unmarked(context, frame, walk, block, of_items, verdict)
    }

    /// Visits the blocks that apply to the value.
    fn walk(
        &mut self,
        context: &mut Context<'_>,
        frame: &Frame,
        walk: &mut MarkWalk,
        of_items: bool,
        child: Option<bool>,
    ) -> Walked {
        let mut verdict = child;
        loop {
            if context.fuel.is_spent() && verdict.is_none() {
                return Walked::Pending;
            }
            if walk.pc >= walk.end {
                let Some(block) = walk.pending.pop() else { return Walked::Next };
                context.fuel.charge(1);
                if walk.visited.insert(block) {
                    let block = context.program.block(block);
                    (walk.pc, walk.end) = (block.start, block.end);
                    (walk.index, walk.cursor, walk.part) = (0, 0, 0);
                    walk.names = None;
                }
                continue;
            }
            let Some(instruction) = context.program.code.get(walk.pc as usize).copied() else { return Walked::Next };
            let walked = if walk.pc == frame.pc {
                Walked::Next
            } else {
                self.walk_instruction(context, frame, walk, instruction, of_items, verdict.take())
            };
            match walked {
                Walked::Next => walk.next_instruction(),
                other => return other,
            }
        }
    }

    fn walk_instruction(
        &mut self,
        context: &mut Context<'_>,
        frame: &Frame,
        walk: &mut MarkWalk,
        instruction: Instruction,
        of_items: bool,
        child: Option<bool>,
    ) -> Walked {
        let program = context.program;
        match instruction {
            Instruction::Ref(block) => walk.pending.push(block),
            Instruction::AllOf(list) => {
                context.fuel.charge(program.list(list).len() as u64);
                walk.pending.extend_from_slice(program.list(list));
            }
            Instruction::AnyOf(list) | Instruction::OneOf(list) => {
                let next = |walk: &MarkWalk| program.list(list).get(walk.index as usize).copied();
                return self.walk_branches(context, frame, walk, next, child);
            }
            Instruction::If(rule) => return self.walk_conditional(context, frame, walk, rule, child),
            Instruction::Dependencies(table) => return walk_dependencies(context, frame, walk, table),
            Instruction::Members(table) if !of_items => return self.walk_members(context, frame, walk, table),
            Instruction::Items { prefix, says_all, .. } if of_items => {
                if says_all {
                    return Walked::All;
                }
                let length = program.list(prefix).len();
                context.fuel.charge(1 + length as u64 / 8);
                (0..length).for_each(|index| {
                    walk.marks.insert(index);
                });
            }
            Instruction::Contains(rule) if of_items => return self.walk_contains(context, frame, walk, rule, child),
            Instruction::UnevaluatedItems(_) if of_items => return Walked::All,
            Instruction::UnevaluatedProperties(_) if !of_items => return Walked::All,
            _ => {}
        }
        context.fuel.charge(1);
        Walked::Next
    }

    /// Visits the branches that hold.
    fn walk_branches(
        &mut self,
        context: &mut Context<'_>,
        frame: &Frame,
        walk: &mut MarkWalk,
        branch: impl Fn(&MarkWalk) -> Option<BlockId>,
        child: Option<bool>,
    ) -> Walked {
        let mut verdict = child;
        loop {
            let Some(block) = branch(walk) else { return Walked::Next };
            if let Some(holds) = verdict.take() {
                if holds {
                    walk.pending.push(block);
                }
                walk.index += 1;
                continue;
            }
            if context.fuel.is_spent() {
                return Walked::Pending;
            }
            context.fuel.charge(1);
            match self.apply(context, frame.node, block, false) {
                Applied::Verdict(holds) => verdict = Some(holds),
                Applied::Push => return Walked::Push(frame.node, block),
            }
        }
    }

    fn walk_conditional(
        &mut self,
        context: &mut Context<'_>,
        frame: &Frame,
        walk: &mut MarkWalk,
        rule: u32,
        child: Option<bool>,
    ) -> Walked {
        let Some(rule) = context.program.conditionals.get(rule as usize).copied() else { return Walked::Next };
        let holds = match child {
            Some(holds) => holds,
            None => match self.apply(context, frame.node, rule.condition, false) {
                Applied::Verdict(holds) => holds,
                Applied::Push => return Walked::Push(frame.node, rule.condition),
            },
        };
        if holds {
            walk.pending.extend([rule.condition, rule.then]);
        } else {
            walk.pending.push(rule.otherwise);
        }
        context.fuel.charge(1);
        Walked::Next
    }

    /// Marks the members that `properties`, `patternProperties` and `additionalProperties` have evaluated: `part` is the
    /// pattern at hand.
    fn walk_members(&mut self, context: &mut Context<'_>, frame: &Frame, walk: &mut MarkWalk, table: u32) -> Walked {
        let tape = context.tape;
        let Some(table) = context.program.members.get(table as usize) else { return Walked::Next };
        if table.additional.is_some() || table.has_unsupported_pattern {
            return Walked::All;
        }
        let end = tape.end(frame.node).index();
        if walk.cursor == 0 {
            walk.cursor = tape.first_child(frame.node).index();
        }
        while walk.cursor < end {
            if context.fuel.is_spent() {
                return Walked::Pending;
            }
            let name = Node::from_index(walk.cursor);
            let is_evaluated = if walk.part == 0 {
                context.fuel.charge(table.cost(tape.raw_length(name)));
                table.rule(tape, tape.entry(name)).is_some_and(|rule| rule.block.is_some())
            } else {
                let pattern = table.patterns.get(walk.part as usize - 1).map_or(0, |(pattern, _)| *pattern);
                match self.match_pattern(context, name, pattern) {
                    Poll::Pending => return Walked::Pending,
                    Poll::Ready(Err(_)) => return Walked::OutOfMemory,
                    Poll::Ready(Ok(is_match)) => is_match,
                }
            };
            if is_evaluated {
                walk.marks.insert(walk.index as usize);
            }
            if is_evaluated || walk.part as usize >= table.patterns.len() {
                walk.cursor = tape.next_sibling(tape.value_of(name)).index();
                walk.index += 1;
                walk.part = 0;
            } else {
                walk.part += 1;
            }
        }
        Walked::Next
    }

    /// Marks the items that `contains` has matched.
    fn walk_contains(
        &mut self,
        context: &mut Context<'_>,
        frame: &Frame,
        walk: &mut MarkWalk,
        rule: u32,
        child: Option<bool>,
    ) -> Walked {
        let tape = context.tape;
        let rule = context.program.contains.get(rule as usize).copied().filter(|rule| rule.marks);
        let Some(rule) = rule else { return Walked::Next };
        let end = tape.end(frame.node).index();
        if walk.cursor == 0 {
            walk.cursor = tape.first_child(frame.node).index();
        }
        let mut verdict = child;
        while walk.cursor < end {
            if let Some(holds) = verdict.take() {
                if holds {
                    walk.marks.insert(walk.index as usize);
                }
                walk.cursor = tape.next_sibling(Node::from_index(walk.cursor)).index();
                walk.index += 1;
                continue;
            }
            if context.fuel.is_spent() {
                return Walked::Pending;
            }
            context.fuel.charge(1);
            let item = Node::from_index(walk.cursor);
            match self.apply(context, item, rule.block, false) {
                Applied::Verdict(holds) => verdict = Some(holds),
                Applied::Push => return Walked::Push(item, rule.block),
            }
        }
        Walked::Next
    }

    /// Applies the subschema to the children that nothing has evaluated.
    fn apply_to_unmarked(
        &mut self,
        context: &mut Context<'_>,
        frame: &mut Frame,
        walk: &mut MarkWalk,
        block: BlockId,
        of_items: bool,
        child: Option<bool>,
    ) -> Step {
        let tape = context.tape;
        let end = tape.end(frame.node).index();
        let mut verdict = child;
        while walk.cursor < end {
            let name = Node::from_index(walk.cursor);
            let value = if of_items { name } else { tape.value_of(name) };
            if let Some(holds) = verdict.take() {
                if !holds && !frame.collects {
                    return Step::FailBelow;
                }
                frame.failed_below |= !holds;
            } else {
                if context.fuel.is_spent() {
                    return Step::Pending;
                }
                context.fuel.charge(1);
                if !walk.marks.contains(walk.index as usize) {
                    if block == BlockId::FALSE {
                        if !frame.collects {
                            return Step::Fail;
                        }
                        walk.unexpected.push(name);
                        if of_items || walk.unexpected.len() >= MAX_UNEXPECTED {
                            break;
                        }
                    } else {
                        match self.apply(context, value, block, frame.collects) {
                            Applied::Verdict(holds) => {
                                verdict = Some(holds);
                                continue;
                            }
                            Applied::Push => {
                                // The pointer of a violation needs the number of the item.
                                frame.index = walk.index;
                                return Step::Push(value, block, frame.collects);
                            }
                        }
                    }
                }
            }
            walk.cursor = tape.next_sibling(value).index();
            walk.index += 1;
        }
        if !walk.unexpected.is_empty() {
            self.details.push(Detail::Unexpected(std::mem::take(&mut walk.unexpected)));
            return Step::Fail;
        }
        if frame.failed_below { Step::FailBelow } else { Step::Pass }
    }
}

fn count_children(context: &mut Context<'_>, node: Node, walk: &mut MarkWalk, of_items: bool) -> Poll<()> {
    let tape = context.tape;
    let end = tape.end(node).index();
    if walk.cursor == 0 {
        walk.cursor = tape.first_child(node).index();
    }
    while walk.cursor < end {
        if walk.children.is_multiple_of(COUNT_BLOCK) {
            if context.fuel.is_spent() {
                return Poll::Pending;
            }
            context.fuel.charge(u64::from(COUNT_BLOCK) / 4);
        }
        let child = Node::from_index(walk.cursor);
        let value = if of_items { child } else { tape.value_of(child) };
        walk.cursor = tape.next_sibling(value).index();
        walk.children += 1;
    }
    Poll::Ready(())
}

/// Visits the schemas that depend on names which are present.
fn walk_dependencies(context: &mut Context<'_>, frame: &Frame, walk: &mut MarkWalk, table: u32) -> Walked {
    let Some(table) = context.program.dependencies.get(table as usize) else { return Walked::Next };
    if context.tape.kind(frame.node) != NodeKind::Object || table.schemas.is_empty() {
        return Walked::Next;
    }
    if walk.cursor == 0 {
        walk.cursor = context.tape.first_child(frame.node).index();
    }
    let seen = walk.names.get_or_insert_with(|| BitSet::with_length(table.names.len()));
    if members::find_names(context, frame.node, &mut walk.cursor, table, seen).is_pending() {
        return Walked::Pending;
    }
    context.fuel.charge(table.schemas.len() as u64);
    let present = table.schemas.iter().filter(|(name, _)| seen.contains(*name as usize));
    walk.pending.extend(present.map(|(_, block)| *block));
    Walked::Next
}
