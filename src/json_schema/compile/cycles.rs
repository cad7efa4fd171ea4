//! Finds schemas that refer to themselves for the same value.

use super::Compiler;
use crate::program::{BlockId, Instruction};

/// Returns a block from which in-place applicators lead back to it.
pub(super) fn find_endless(compiler: &Compiler<'_, '_>) -> Option<BlockId> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; compiler.blocks.len()];
    let mut stack = Vec::new();
    for start in 0..u32::try_from(compiler.blocks.len()).unwrap_or(u32::MAX) {
        stack.push((BlockId(start), false));
        while let Some((block, is_left)) = stack.pop() {
            let Some(mark) = marks.get_mut(block.0 as usize) else { continue };
            match (*mark, is_left) {
                (_, true) => *mark = Mark::Done,
                (Mark::New, false) => {
                    *mark = Mark::Open;
                    stack.push((block, true));
                    for target in in_place_targets(compiler, block) {
                        match marks.get(target.0 as usize) {
                            Some(Mark::Open) => return Some(target),
                            Some(Mark::New) => stack.push((target, false)),
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
    }
    None
}

/// Returns the blocks that a block applies to its own value.
fn in_place_targets(compiler: &Compiler<'_, '_>, block: BlockId) -> Vec<BlockId> {
    let Some(block) = compiler.blocks.get(block.0 as usize) else { return Vec::new() };
    let code = compiler.code.get(block.start as usize..block.end as usize).unwrap_or_default();
    let mut targets = Vec::new();
    for instruction in code {
        match instruction {
            Instruction::Ref(target) | Instruction::Not(target) => targets.push(*target),
            Instruction::AllOf(list) | Instruction::AnyOf(list) | Instruction::OneOf(list) => {
                targets.extend(compiler.lists.get(list.start as usize..list.end as usize).unwrap_or_default());
            }
            Instruction::If(index) => {
                let rule = compiler.conditionals.get(*index as usize);
                targets.extend(rule.into_iter().flat_map(|rule| [rule.condition, rule.then, rule.otherwise]));
            }
            Instruction::Dependencies(index) => {
                let rules = compiler.dependencies.get(*index as usize).into_iter().flat_map(|table| &table.schemas);
                targets.extend(rules.map(|(_, target)| *target));
            }
            _ => {}
        }
    }
    targets
}
