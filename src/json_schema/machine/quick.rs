//! Verdicts of small values, without frames: most checks of a gateway are these.
//!
//! This is the first pass in short: a recursion of bounded depth and fuel over the instructions that ordinary schemas
//! have. It gives up on everything else (long texts, `unevaluated*`, dependencies), and then the machine begins anew. What
//! it takes is charged either way, so that the fuel of a check does not depend on the size of a slice.

use super::{Context, leaf, members::rule_of};
use crate::{
    fuel::Fuel,
    program::{BlockId, Instruction, MembersTable, Program},
    tape::{Node, NodeKind, Tape},
};

/// Units after which the machine takes over: some 10 µs.
const MAX_FUEL: u64 = 1_000;
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

fn apply(context: &mut Context<'_>, node: Node, block: BlockId, depth: u32) -> Option<bool> {
    if block == BlockId::TRUE {
        return Some(true);
    }
    let program: &Program = context.program;
    let block = program.blocks.get(block.0 as usize)?;
    let code = program.code.get(block.start as usize..block.end as usize)?;
    let depth = depth.checked_sub(1)?;
    for instruction in code {
        context.fuel.charge(1);
        if context.fuel.is_spent() {
            return None;
        }
        if !holds(context, node, *instruction, depth)? {
            return Some(false);
        }
    }
    Some(true)
}

#[inline]
fn holds(context: &mut Context<'_>, node: Node, instruction: Instruction, depth: u32) -> Option<bool> {
    let program: &Program = context.program;
    match instruction {
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
        leaf => leaf::quick(context, node, leaf),
    }
}

fn members(context: &mut Context<'_>, node: Node, table: &MembersTable, depth: u32) -> Option<bool> {
    let tape: &Tape = context.tape;
    if tape.kind(node) != NodeKind::Object {
        return Some(true);
    }
    let (mut name, end, mut required) = (tape.first_child(node), tape.end(node), 0);
    while name < end {
        context.fuel.charge(table.cost(tape.raw_length(name)));
        if context.fuel.is_spent() {
            return None;
        }
        let value = tape.value_of(name);
        let rule = rule_of(table, tape, name);
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
        for (pattern, block) in &table.patterns {
            let text = leaf::short_text(context, name)?;
            if context.program.patterns.get(*pattern as usize)?.quick_match(&text, context.fuel)? {
                is_known = true;
                if !apply(context, value, *block, depth)? {
                    return Some(false);
                }
            }
        }
        if !is_known
            && let Some(block) = table.additional
            && !apply(context, value, block, depth)?
        {
            return Some(false);
        }
        name = tape.next_sibling(value);
    }
    Some(required == table.required.len())
}

fn items(context: &mut Context<'_>, node: Node, prefix: &[BlockId], rest: BlockId, depth: u32) -> Option<bool> {
    let tape: &Tape = context.tape;
    if tape.kind(node) != NodeKind::Array {
        return Some(true);
    }
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
