//! Instructions that apply subschemas to the same value. `index` is the number of the subschema at hand.

use super::{
    Context,
    frame::{Applied, Frame, Step},
    scratch::{MAX_REASONS, Scratch},
    violation::Detail,
};
use crate::program::{BlockId, ListRange};

impl Scratch {
    pub(super) fn step_ref(
        &mut self,
        context: &mut Context<'_>,
        frame: &Frame,
        block: BlockId,
        child: Option<bool>,
    ) -> Step {
        let holds = match child {
            Some(holds) => holds,
            None => match self.apply(context, frame.node, block, frame.collects) {
                Applied::Verdict(holds) => holds,
                Applied::Push => return Step::Push(frame.node, block, frame.collects),
            },
        };
        if holds { Step::Pass } else { Step::FailBelow }
    }

    pub(super) fn step_all_of(
        &mut self,
        context: &mut Context<'_>,
        frame: &mut Frame,
        list: ListRange,
        child: Option<bool>,
    ) -> Step {
        let mut verdict = child;
        loop {
            if let Some(holds) = verdict.take() {
                if !holds && !frame.collects {
                    return Step::FailBelow;
                }
                frame.failed_below |= !holds;
                frame.index += 1;
            }
            let Some(block) = context.program.list(list).get(frame.index as usize).copied() else { break };
            if context.fuel.is_spent() {
                return Step::Pending;
            }
            context.fuel.charge(1);
            match self.apply(context, frame.node, block, frame.collects) {
                Applied::Verdict(holds) => verdict = Some(holds),
                Applied::Push => return Step::Push(frame.node, block, frame.collects),
            }
        }
        if frame.failed_below { Step::FailBelow } else { Step::Pass }
    }

    /// `anyOf`, or else `oneOf`.
    pub(super) fn step_alternatives(
        &mut self,
        context: &mut Context<'_>,
        frame: &mut Frame,
        depth: usize,
        list: ListRange,
        child: Option<bool>,
        is_any: bool,
    ) -> Step {
        let mut verdict = child;
        if frame.index == 0 && child.is_none() && frame.collects {
            self.reasons.clear();
        }
        loop {
            if let Some(holds) = verdict.take() {
                let reason = self.end_capture(frame);
                if holds {
                    frame.count += 1;
                    if is_any {
                        return Step::Pass;
                    }
                    if frame.count > 1 {
                        if frame.collects || frame.explains {
                            self.details.push(Detail::SeveralMatch);
                        }
                        return Step::Fail;
                    }
                } else if frame.collects && self.reasons.len() < MAX_REASONS {
                    self.reasons.extend(reason);
                }
                frame.index += 1;
            }
            let Some(block) = context.program.list(list).get(frame.index as usize).copied() else { break };
            if context.fuel.is_spent() {
                return Step::Pending;
            }
            context.fuel.charge(1);
            // Alternatives of an alternative give no reasons of their own.
            self.gives_reason = false;
            if (frame.index as usize) < MAX_REASONS {
                self.begin_capture(frame, depth);
            }
            match self.apply(context, frame.node, block, false) {
                Applied::Verdict(holds) => verdict = Some(holds),
                Applied::Push => return Step::Push(frame.node, block, false),
            }
        }
        if frame.count == 1 {
            return Step::Pass;
        }
        if frame.collects {
            let alternatives = context.program.list(list).len();
            self.details.push(Detail::NoneMatches { alternatives, reasons: std::mem::take(&mut self.reasons) });
        }
        Step::Fail
    }

    pub(super) fn step_not(
        &mut self,
        context: &mut Context<'_>,
        frame: &Frame,
        block: BlockId,
        child: Option<bool>,
    ) -> Step {
        self.gives_reason = false;
        let holds = match child {
            Some(holds) => holds,
            None => match self.apply(context, frame.node, block, false) {
                Applied::Verdict(holds) => holds,
                Applied::Push => return Step::Push(frame.node, block, false),
            },
        };
        if holds { Step::Fail } else { Step::Pass }
    }

    /// `index` is 0 for the condition, and 1 for a branch.
    pub(super) fn step_if(
        &mut self,
        context: &mut Context<'_>,
        frame: &mut Frame,
        rule: u32,
        child: Option<bool>,
    ) -> Step {
        let Some(rule) = context.program.conditionals.get(rule as usize).copied() else { return Step::Pass };
        if rule.then == BlockId::TRUE && rule.otherwise == BlockId::TRUE {
            return Step::Pass;
        }
        let mut verdict = child;
        if frame.index == 0 {
            let condition = match verdict.take() {
                Some(holds) => holds,
                None => {
                    self.gives_reason = false;
                    match self.apply(context, frame.node, rule.condition, false) {
                        Applied::Verdict(holds) => holds,
                        Applied::Push => return Step::Push(frame.node, rule.condition, false),
                    }
                }
            };
            self.gives_reason = frame.explains;
            (frame.index, frame.flag) = (1, condition);
        }
        let branch = if frame.flag { rule.then } else { rule.otherwise };
        let holds = match verdict {
            Some(holds) => holds,
            None => match self.apply(context, frame.node, branch, frame.collects) {
                Applied::Verdict(holds) => holds,
                Applied::Push => return Step::Push(frame.node, branch, frame.collects),
            },
        };
        if holds { Step::Pass } else { Step::FailBelow }
    }
}
