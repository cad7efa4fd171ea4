//! Instructions for the members of objects. `cursor` is the entry of the name at hand (0 before the first).

use super::{
    Context,
    bit_set::BitSet,
    frame::{Applied, Frame, Step},
    scratch::{Findings, Scratch},
    violation::Detail,
};
use crate::{
    program::{BlockId, DependencyTable, MembersTable},
    tape::{Node, NodeKind},
};
use std::task::Poll;

/// Names that a violation lists, and one more.
const MAX_UNEXPECTED: usize = 13;
/// Required names, and entries of an object, that are searched for the reason of an alternative.
const MAX_SEARCHED_NAMES: usize = 32;
const MAX_SEARCHED_ENTRIES: u32 = 512;
/// Bytes of a name that are hashed and compared for one unit.
const BYTES_PER_UNIT: u64 = 64;

/// What is done with a member: its rule in `properties`, each pattern, `additionalProperties`. `index` is the stage.
enum Stage {
    Properties,
    Pattern(u32, BlockId),
    Additional,
    Done,
}

fn stage(table: &MembersTable, index: u32) -> Stage {
    let Some(pattern) = (index as usize).checked_sub(1) else { return Stage::Properties };
    match table.patterns.get(pattern) {
        Some((pattern, block)) => Stage::Pattern(*pattern, *block),
        None if pattern == table.patterns.len() => Stage::Additional,
        None => Stage::Done,
    }
}

impl Scratch {
    /// `count` is the number of required names that were found; `flag` is whether the member at hand has been matched.
    pub(super) fn step_members(
        &mut self,
        context: &mut Context<'_>,
        frame: &mut Frame,
        depth: usize,
        table: u32,
        child: Option<bool>,
    ) -> Step {
        let tape = context.tape;
        let Some(table) = context.program.members.get(table as usize) else { return Step::Pass };
        if frame.cursor == 0 {
            if tape.kind(frame.node) != NodeKind::Object {
                return Step::Pass;
            }
            frame.cursor = tape.first_child(frame.node).index();
            if frame.collects {
                context.fuel.charge(table.required.len() as u64 / 512);
                let seen = BitSet::with_length(table.required.len());
                self.findings.push(Findings { depth, seen, unexpected: Vec::new() });
            }
        }
        let end = tape.end(frame.node).index();
        let mut verdict = child;
        loop {
            if let Some(holds) = verdict.take() {
                if !holds && !frame.collects {
                    return Step::FailBelow;
                }
                frame.failed_below |= !holds;
                frame.index += 1;
            }
            if frame.cursor >= end {
                return self.end_members(context, frame, depth, table);
            }
            if context.fuel.is_spent() {
                return Step::Pending;
            }
            let name = Node::from_index(frame.cursor);
            let value = tape.value_of(name);
            let block = match stage(table, frame.index) {
                Stage::Properties => {
                    context.fuel.charge(table.cost(tape.raw_length(name)));
                    let rule = table.rule(tape, tape.entry(name));
                    if let Some(rule) = rule.filter(|rule| rule.required != u32::MAX) {
                        frame.count += 1;
                        self.record_required(frame, rule.required);
                    }
                    let block = rule.and_then(|rule| rule.block);
                    frame.flag = block.is_some();
                    block
                }
                Stage::Pattern(pattern, block) => {
                    // The work of a long name goes on where it was.
                    match self.match_pattern(context, name, pattern) {
                        Poll::Pending => return Step::Pending,
                        Poll::Ready(Err(_)) => return Step::OutOfMemory,
                        Poll::Ready(Ok(is_match)) => {
                            frame.flag |= is_match;
                            is_match.then_some(block)
                        }
                    }
                }
                Stage::Additional if frame.flag => None,
                Stage::Additional => match table.additional {
                    Some(BlockId::FALSE) if !frame.collects => {
                        if frame.explains {
                            self.details.push(Detail::Unexpected(vec![name]));
                        }
                        return Step::Fail;
                    }
                    Some(BlockId::FALSE) => {
                        self.record_unexpected(name);
                        None
                    }
                    additional => additional,
                },
                Stage::Done => {
                    frame.cursor = tape.next_sibling(value).index();
                    (frame.index, frame.flag) = (0, false);
                    continue;
                }
            };
            match block.map(|block| (block, self.apply(context, value, block, frame.collects))) {
                None => frame.index += 1,
                Some((_, Applied::Verdict(holds))) => verdict = Some(holds),
                Some((block, Applied::Push)) => return Step::Push(value, block, frame.collects),
            }
        }
    }

    fn record_required(&mut self, frame: &Frame, required: u32) {
        if frame.collects
            && let Some(findings) = self.findings.last_mut()
        {
            findings.seen.insert(required as usize);
        }
    }

    fn record_unexpected(&mut self, name: Node) {
        if let Some(findings) = self.findings.last_mut()
            && findings.unexpected.len() < MAX_UNEXPECTED
        {
            findings.unexpected.push(name);
        }
    }

    fn end_members(
        &mut self,
        context: &mut Context<'_>,
        frame: &mut Frame,
        depth: usize,
        table: &MembersTable,
    ) -> Step {
        let is_complete = frame.count as usize == table.required.len();
        if !frame.collects {
            if is_complete {
                return Step::Pass;
            }
            if frame.explains {
                self.details.extend(first_missing(context, frame.node, table));
            }
            return Step::Fail;
        }
        let findings = self.findings.pop_if(|of_frame| of_frame.depth == depth);
        let Some(findings) = findings else { return Step::Pass };
        if !is_complete {
            let missing = (0..table.required.len()).filter(|index| !findings.seen.contains(*index));
            self.details.extend(missing.take(super::MAX_VIOLATIONS).map(Detail::Missing));
        }
        if !findings.unexpected.is_empty() {
            self.details.push(Detail::Unexpected(findings.unexpected));
        }
        match (self.details.is_empty(), frame.failed_below) {
            (false, _) => Step::Fail,
            (true, true) => Step::FailBelow,
            (true, false) => Step::Pass,
        }
    }

    pub(super) fn step_names(
        &mut self,
        context: &mut Context<'_>,
        frame: &mut Frame,
        depth: usize,
        block: BlockId,
        child: Option<bool>,
    ) -> Step {
        let tape = context.tape;
        if frame.cursor == 0 {
            if tape.kind(frame.node) != NodeKind::Object {
                return Step::Pass;
            }
            frame.cursor = tape.first_child(frame.node).index();
        }
        let end = tape.end(frame.node).index();
        let mut verdict = child;
        loop {
            let name = Node::from_index(frame.cursor);
            if let Some(holds) = verdict.take() {
                let reason = self.end_capture(frame);
                if !holds {
                    if frame.collects {
                        self.details.push(Detail::Name(name, reason.map(Box::new)));
                    }
                    return Step::Fail;
                }
                frame.cursor = tape.next_sibling(tape.value_of(name)).index();
                continue;
            }
            if frame.cursor >= end {
                return Step::Pass;
            }
            if context.fuel.is_spent() {
                return Step::Pending;
            }
            context.fuel.charge(1);
            self.begin_capture(frame, depth);
            match self.apply(context, name, block, false) {
                Applied::Verdict(holds) => verdict = Some(holds),
                Applied::Push => return Step::Push(name, block, false),
            }
        }
    }

    /// `flag` is whether the presence of the names is known; then `index` is the number of the dependent schema.
    pub(super) fn step_dependencies(
        &mut self,
        context: &mut Context<'_>,
        frame: &mut Frame,
        depth: usize,
        table: u32,
        child: Option<bool>,
    ) -> Step {
        let Some(table) = context.program.dependencies.get(table as usize) else { return Step::Pass };
        if frame.cursor == 0 {
            if context.tape.kind(frame.node) != NodeKind::Object {
                return Step::Pass;
            }
            frame.cursor = context.tape.first_child(frame.node).index();
            context.fuel.charge(table.names.len() as u64 / 512);
            let seen = BitSet::with_length(table.names.len());
            self.findings.push(Findings { depth, seen, unexpected: Vec::new() });
        }
        if !frame.flag {
            let Some(findings) = self.findings.last_mut() else { return Step::Pass };
            if find_names(context, frame.node, &mut frame.cursor, table, &mut findings.seen).is_pending() {
                return Step::Pending;
            }
            frame.flag = true;
            context.fuel.charge(table.required.iter().map(|(_, names)| names.len() as u64 / 8 + 1).sum());
            if !self.check_required_names(frame, table) {
                return Step::Fail;
            }
        }
        let mut verdict = child;
        loop {
            if let Some(holds) = verdict.take() {
                if !holds && !frame.collects {
                    return Step::FailBelow;
                }
                frame.failed_below |= !holds;
                frame.index += 1;
            }
            let Some((name, block)) = table.schemas.get(frame.index as usize).copied() else { break };
            if context.fuel.is_spent() {
                return Step::Pending;
            }
            context.fuel.charge(1);
            if !self.findings.last().is_some_and(|findings| findings.seen.contains(name as usize)) {
                frame.index += 1;
                continue;
            }
            match self.apply(context, frame.node, block, frame.collects) {
                Applied::Verdict(holds) => verdict = Some(holds),
                Applied::Push => return Step::Push(frame.node, block, frame.collects),
            }
        }
        self.findings.pop_if(|of_frame| of_frame.depth == depth);
        if frame.failed_below { Step::FailBelow } else { Step::Pass }
    }

    /// Returns whether the names are present that others require.
    fn check_required_names(&mut self, frame: &Frame, table: &DependencyTable) -> bool {
        let Some(findings) = self.findings.last() else { return true };
        let has = |name: &u32| findings.seen.contains(*name as usize);
        let in_force = table.required.iter().filter(|(trigger, _)| has(trigger));
        let mut missing = in_force.flat_map(|(trigger, names)| {
            names.iter().filter(|name| !has(name)).map(|name| Detail::Dependent { trigger: *trigger, name: *name })
        });
        if frame.collects {
            self.details.extend(missing.take(super::MAX_VIOLATIONS));
            self.details.is_empty()
        } else {
            missing.next().is_none()
        }
    }
}

/// Returns a required name that a small object lacks, for the reason of an alternative.
fn first_missing(context: &mut Context<'_>, object: Node, table: &MembersTable) -> Option<Detail> {
    let entries = context.tape.end(object).index() - object.index();
    let names = table.required.iter().take(MAX_SEARCHED_NAMES).enumerate();
    if entries > MAX_SEARCHED_ENTRIES {
        return None;
    }
    context.fuel.charge(u64::from(entries) * names.len() as u64 / 4);
    let mut missing = names.filter(|(_, name)| context.tape.find_member(object, name).is_none());
    missing.next().map(|(index, _)| Detail::Missing(index))
}

/// Finds which names of a table an object has, from the name at `cursor` on.
pub(super) fn find_names(
    context: &mut Context<'_>,
    object: Node,
    cursor: &mut u32,
    table: &DependencyTable,
    seen: &mut BitSet,
) -> Poll<()> {
    let tape = context.tape;
    let end = tape.end(object).index();
    while *cursor < end {
        if context.fuel.is_spent() {
            return Poll::Pending;
        }
        let name = Node::from_index(*cursor);
        context.fuel.charge(4 + tape.raw_length(name).min(table.max_name) as u64 / BYTES_PER_UNIT);
        let known = match tape.kind(name) {
            NodeKind::EscapedString if tape.raw_length(name) / 6 <= table.max_name => {
                table.names.get(tape.text(name).as_bytes())
            }
            NodeKind::EscapedString => None,
            _ if tape.raw_length(name) > table.max_name => None,
            _ => table.names.get(tape.raw_bytes(name)),
        };
        if let Some(index) = known {
            seen.insert(*index as usize);
        }
        *cursor = tape.next_sibling(tape.value_of(name)).index();
    }
    Poll::Ready(())
}
