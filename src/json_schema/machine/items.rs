//! Instructions for the items of arrays. `cursor` is the entry of the item at hand (0 before the first), `index` its
//! number.

use super::{
    Context,
    frame::{Applied, Frame, Step},
    scratch::Scratch,
    violation::Detail,
};
use crate::{
    program::{BlockId, ListRange},
    tape::{Node, NodeKind},
};

impl Scratch {
    pub(super) fn step_items(
        &mut self,
        context: &mut Context<'_>,
        frame: &mut Frame,
        prefix: ListRange,
        rest: BlockId,
        child: Option<bool>,
    ) -> Step {
        let tape = context.tape;
        if frame.cursor == 0 {
            if tape.kind(frame.node) != NodeKind::Array {
                return Step::Pass;
            }
            frame.cursor = tape.first_child(frame.node).index();
        }
        let (end, prefix) = (tape.end(frame.node), context.program.list(prefix));
        let mut verdict = child;
        loop {
            if let Some(holds) = verdict.take() {
                if !holds {
                    if !frame.collects {
                        return Step::FailBelow;
                    }
                    frame.failed_below = true;
                }
                frame.cursor = tape.next_sibling(Node::from_index(frame.cursor)).index();
                frame.index += 1;
            }
            if frame.cursor >= end.index() {
                break;
            }
            let block = match prefix.get(frame.index as usize) {
                Some(block) => *block,
                None if rest == BlockId::TRUE => break,
                None if rest == BlockId::FALSE && !prefix.is_empty() => {
                    if frame.collects || frame.explains {
                        self.details.push(Detail::TooManyItems(prefix.len()));
                    }
                    return Step::Fail;
                }
                None => rest,
            };
            if context.fuel.is_spent() {
                // The item at hand has not been looked at.
                return Step::Pending;
            }
            context.fuel.charge(1);
            let item = Node::from_index(frame.cursor);
            match self.apply(context, item, block, frame.collects) {
                Applied::Verdict(holds) => verdict = Some(holds),
                Applied::Push => return Step::Push(item, block, frame.collects),
            }
        }
        if frame.failed_below { Step::FailBelow } else { Step::Pass }
    }

    pub(super) fn step_contains(
        &mut self,
        context: &mut Context<'_>,
        frame: &mut Frame,
        rule: u32,
        child: Option<bool>,
    ) -> Step {
        let tape = context.tape;
        let Some(rule) = context.program.contains.get(rule as usize).copied() else { return Step::Pass };
        if frame.cursor == 0 {
            if tape.kind(frame.node) != NodeKind::Array || rule.min == 0 && rule.max == u32::MAX {
                return Step::Pass;
            }
            frame.cursor = tape.first_child(frame.node).index();
        }
        let end = tape.end(frame.node);
        let mut verdict = child;
        loop {
            if let Some(holds) = verdict.take() {
                frame.count += u32::from(holds);
                frame.cursor = tape.next_sibling(Node::from_index(frame.cursor)).index();
                frame.index += 1;
            }
            if frame.count > rule.max {
                return Step::Fail;
            }
            if frame.count >= rule.min && rule.max == u32::MAX {
                return Step::Pass;
            }
            if frame.cursor >= end.index() {
                return if frame.count >= rule.min { Step::Pass } else { Step::Fail };
            }
            if context.fuel.is_spent() {
                return Step::Pending;
            }
            context.fuel.charge(1);
            let item = Node::from_index(frame.cursor);
            self.gives_reason = false;
            match self.apply(context, item, rule.block, false) {
                Applied::Verdict(holds) => verdict = Some(holds),
                Applied::Push => return Step::Push(item, rule.block, false),
            }
        }
    }
}
