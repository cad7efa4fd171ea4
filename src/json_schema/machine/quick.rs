//! Verdicts of small values, without frames: most checks of a gateway are these.
//!
//! This is the first pass in short: a recursion of bounded depth and fuel over the instructions that ordinary schemas
//! have. It gives up on everything else (long texts, `unevaluated*`, dependencies), and then the machine begins anew. What
//! it takes is charged either way, so that the fuel of a check does not depend on the size of a slice.

use super::{Context, leaf};
use crate::{
    fuel::Fuel,
    program::{Block, BlockId, Instruction, MembersTable, Program},
    tape::{Node, NodeKind, Tape},
};

/// Units after which the machine takes over: some 10 µs.
const MAX_FUEL: u64 = 1_000;
/// Bytes of a name whose comparison is charged by itself.
const LONG_NAME: usize = 64;
/// Blocks within blocks.
const MAX_DEPTH: u32 = 48;

/// Returns whether a value is valid, or `None` if that takes the machine.
pub(super) fn verdict(context: &mut Context<'_>, node: Node, block: BlockId) -> Option<bool> {
    let mut fuel = Fuel::new(MAX_FUEL);
    let mut within = Context { program: context.program, tape: context.tape, fuel: &mut fuel };
    let verdict = apply(&mut within, node, block, MAX_DEPTH);
    context.fuel.charge(fuel.used());
    verdict
}

/// Applies a block to a value. It charges each block and looks at the fuel, because a list of blocks can be long.
#[inline(always)]
fn apply(context: &mut Context<'_>, node: Node, block: BlockId, depth: u32) -> Option<bool> {
    let block = context.program.blocks.get(block.0 as usize)?;
    if context.fuel.is_spent() {
        return None;
    }
    if block.summary.is_leaf {
        leaf::quick_block(context, node, block)
    } else {
        apply_code(context, node, block, depth)
    }
}

fn apply_code(context: &mut Context<'_>, node: Node, block: &Block, depth: u32) -> Option<bool> {
    context.fuel.charge(1);
    if let Some(verdict) = block.summary.verdict(context.tape.entry(node)) {
        return Some(verdict);
    }
    let (program, kind): (&Program, _) = (context.program, context.tape.kind(node));
    let code = program.open_code(block, kind)?;
    context.fuel.charge(code.len() as u64);
    for instruction in code {
        if !holds(context, node, kind, *instruction, depth)? {
            return Some(false);
        }
    }
    Some(true)
}

#[inline]
fn holds(context: &mut Context<'_>, node: Node, kind: NodeKind, instruction: Instruction, depth: u32) -> Option<bool> {
    let program: &Program = context.program;
    let depth = depth.checked_sub(1)?;
    match instruction {
        Instruction::Members(_) if kind != NodeKind::Object => Some(true),
        Instruction::Items { .. } if kind != NodeKind::Array => Some(true),
        Instruction::Members(table) => members(context, node, program.members.get(table as usize)?, depth),
        Instruction::Items { prefix, rest, .. } => items(context, node, program.list(prefix), rest, depth),
        Instruction::Ref(block) => apply(context, node, block, depth),
        Instruction::AllOf(list) => {
            for block in program.list(list) {
                if !apply(context, node, *block, depth)? {
                    return Some(false);
                }
            }
            Some(true)
        }
        Instruction::AnyOf(list) => {
            for block in program.list(list) {
                if apply(context, node, *block, depth)? {
                    return Some(true);
                }
            }
            Some(false)
        }
        Instruction::OneOf(list) => {
            let mut count = 0;
            for block in program.list(list) {
                count += u32::from(apply(context, node, *block, depth)?);
                if count > 1 {
                    return Some(false);
                }
            }
            Some(count == 1)
        }
        Instruction::Not(block) => apply(context, node, block, depth).map(|verdict| !verdict),
        Instruction::If(rule) => {
            let rule = program.conditionals.get(rule as usize)?;
            let branch = if apply(context, node, rule.condition, depth)? { rule.then } else { rule.otherwise };
            apply(context, node, branch, depth)
        }
        leaf => leaf::quick(context, node, kind, leaf),
    }
}

#[inline(never)]
fn members(context: &mut Context<'_>, node: Node, table: &MembersTable, depth: u32) -> Option<bool> {
    let tape: &Tape = context.tape;
    let entries = tape.subtree(node)?;
    // The entries are charged at once, as if each were a name of this object.
    context.fuel.charge(entries.len() as u64 / 2 * table.cost(0));
    if context.fuel.is_spent() {
        return None;
    }
    let (mut at, mut required) = (1, 0);
    while let Some(name) = entries.get(at) {
        if name.length() >= LONG_NAME {
            context.fuel.charge(table.cost(name.length()));
            if context.fuel.is_spent() {
                return None;
            }
        }
        let value = Node::from_index(node.index() + at as u32 + 1);
        let rule = table.rule(tape, *name);
        let mut is_known = false;
        if let Some(rule) = rule {
            required += usize::from(rule.required != u32::MAX);
            if let Some(block) = rule.block {
                is_known = true;
                if !apply(context, value, block, depth)? {
                    return Some(false);
                }
            }
        }
        if (!is_known && table.additional.is_some() || !table.patterns.is_empty())
            && !patterns_and_additional(context, value, is_known, table, depth)?
        {
            return Some(false);
        }
        at += 1 + entries.get(at + 1)?.subtree() as usize;
    }
    Some(required == table.required.len())
}

/// Applies `patternProperties` and `additionalProperties` to one member.
#[inline(never)]
fn patterns_and_additional(
    context: &mut Context<'_>,
    value: Node,
    mut is_known: bool,
    table: &MembersTable,
    depth: u32,
) -> Option<bool> {
    let name = Node::from_index(value.index() - 1);
    for (pattern, block) in &table.patterns {
        let text = leaf::short_text(context, name)?;
        if context.program.patterns.get(*pattern as usize)?.quick_match(&text, context.fuel)? {
            is_known = true;
            if !apply(context, value, *block, depth)? {
                return Some(false);
            }
        }
    }
    match table.additional {
        Some(block) if !is_known => apply(context, value, block, depth),
        _ => Some(true),
    }
}

#[inline(never)]
fn items(context: &mut Context<'_>, node: Node, prefix: &[BlockId], rest: BlockId, depth: u32) -> Option<bool> {
    let tape: &Tape = context.tape;
    let (mut item, end, mut prefix) = (tape.first_child(node), tape.end(node), prefix.iter());
    while item < end {
        let block = match prefix.next() {
            Some(block) => *block,
            None if rest == BlockId::TRUE => break,
            None => rest,
        };
        context.fuel.charge(1);
        if context.fuel.is_spent() {
            return None;
        }
        if !apply(context, item, block, depth)? {
            return Some(false);
        }
        item = tape.next_sibling(item);
    }
    Some(true)
}
