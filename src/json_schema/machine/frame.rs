//! Frames: blocks that are being applied to a value.

use crate::{
    program::{Block, BlockId},
    tape::Node,
};

/// A block that is being applied to a value. What `cursor`, `index` and `count` mean, the current instruction decides;
/// they are 0 when it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) node: Node,
    pub(super) block: BlockId,
    /// The current instruction.
    pub(super) pc: u32,
    /// The end of the instructions.
    pub(super) end: u32,
    pub(super) cursor: u32,
    pub(super) index: u32,
    pub(super) count: u32,
    /// Whether violations are recorded, and the block goes on after one.
    pub(super) collects: bool,
    pub(super) has_failed: bool,
    /// Whether the block gives the reason why it fails.
    pub(super) explains: bool,
    /// For the current instruction.
    pub(super) flag: bool,
    pub(super) failed_below: bool,
}

impl Frame {
    pub(super) fn new(node: Node, id: BlockId, block: Block, collects: bool) -> Self {
        Self {
            node,
            block: id,
            pc: block.start,
            end: block.end,
            cursor: 0,
            index: 0,
            count: 0,
            collects,
            has_failed: false,
            explains: false,
            flag: false,
            failed_below: false,
        }
    }

    /// Goes to the next instruction.
    pub(super) fn advance(&mut self) {
        self.pc += 1;
        (self.cursor, self.index, self.count) = (0, 0, 0);
        (self.flag, self.failed_below) = (false, false);
    }
}

/// What a step of an instruction came to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// The instruction holds.
    Pass,
    /// The instruction does not hold.
    Fail,
    /// A subschema does not hold, which has recorded its violations.
    FailBelow,
    /// This block must be applied to this value first; the last member is [`Frame::collects`].
    Push(Node, BlockId, bool),
    /// The slice has ended.
    Pending,
    /// The check takes more memory than allowed.
    OutOfMemory,
    /// A part of the check that cannot be suspended would take too long.
    OutOfFuel,
}

/// What applying a block came to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Applied {
    /// The verdict is known.
    Verdict(bool),
    /// The block needs a frame.
    Push,
}
