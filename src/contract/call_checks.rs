//! The parsing and the checks of one call. What fits into a slice runs on the calling thread, by reference; the rest goes
//! on among the suspended checks.

use super::{
    body_tape::{BodyMemory, BodyTape, JsonBounds, MemoryAccounts, invalid_json},
    check_scheduler::{AgentSuspendedChecks, CheckScheduler, SLICE, SuspendRequest, SuspendedWork},
    config::SuspendedCheckConfig,
    operation_contract::{ContractSide, OperationContract},
};
use crate::{
    fault::{Fault, Result, Violation},
    values::ClientKey,
};
use bytes::Bytes;
use json_schema::{
    Evaluation, Outcome, Program, Tape,
    fuel::Fuel,
    tape::{Node, TapeError, TapeParser},
};
use serde_json::Value;
use std::{sync::Arc, task::Poll, time::Instant};

/// Memory of a value of `serde_json` for an entry of a tape, at most.
const VALUE_BYTES: usize = 112;
/// Entries of a tape that are converted at once on a thread that serves calls.
const INLINE_ENTRIES: usize = 16 << 10;
/// Memory of a violation beside its texts.
const VIOLATION_BYTES: usize = 64;

/// Whose checks those of a call are.
#[derive(Clone, Copy)]
pub struct CheckOwner<'a> {
    /// The suspended checks of the agent whose schemas count.
    pub agent: &'a AgentSuspendedChecks,
    /// The client whose share a suspended check counts against.
    pub client: ClientKey,
    /// The bounds of suspended checks.
    pub config: &'a SuspendedCheckConfig,
    /// When the checks must have ended.
    pub deadline: Instant,
}

/// The parsing and the checks of one call, which share a slice of the calling thread.
pub struct CallChecks<'a> {
    scheduler: &'a CheckScheduler,
    owner: CheckOwner<'a>,
    accounts: &'a dyn MemoryAccounts,
    slice_left: u64,
}

/// Why a body has no tape.
#[derive(Debug)]
pub enum ParseFailure {
    /// It is no JSON.
    NotJson(Fault),
    /// The memory or the time for it is not there.
    Refused(Fault),
}

impl From<ParseFailure> for Fault {
    fn from(failure: ParseFailure) -> Self {
        match failure {
            ParseFailure::NotJson(fault) | ParseFailure::Refused(fault) => fault,
        }
    }
}

impl<'a> CallChecks<'a> {
    /// Begins the checks of a call.
    pub fn new(scheduler: &'a CheckScheduler, owner: CheckOwner<'a>, accounts: &'a dyn MemoryAccounts) -> Self {
        Self { scheduler, owner, accounts, slice_left: SLICE }
    }

    /// Goes on with work among the suspended checks.
    async fn suspend<W: SuspendedWork>(&self, work: W) -> Result<W::Output> {
        let CheckOwner { agent, client, config, deadline } = self.owner;
        let request = SuspendRequest { agent, client, config, max_share: self.accounts.max_share(), deadline };
        self.scheduler.run(request, work).await
    }

    /// Parses a body: UTF-8 without a byte order mark, unique names in each object, no trailing data.
    ///
    /// # Errors
    /// The body is no JSON, or there is no memory or time for it.
    pub async fn parse(&mut self, body: Bytes, bounds: JsonBounds) -> std::result::Result<BodyTape, ParseFailure> {
        let mut memory = BodyMemory::default();
        let mut fuel = Fuel::new(self.slice_left);
        let mut parser = TapeParser::new(body, &bounds.into());
        let result = parser.resume(&mut fuel);
        self.slice_left = self.slice_left.saturating_sub(fuel.used());
        let tape = match result {
            Poll::Ready(parsed) => parsed.map_err(not_json)?,
            Poll::Pending => return Box::pin(self.parse_suspended(parser)).await,
        };
        memory.count(tape.memory(), self.accounts).map_err(ParseFailure::Refused)?;
        Ok(BodyTape { tape, memory })
    }

    async fn parse_suspended(&mut self, parser: TapeParser) -> std::result::Result<BodyTape, ParseFailure> {
        let mut memory = BodyMemory::default();
        memory.open(self.accounts);
        let work = SuspendedParsing { parser, memory };
        self.suspend(work).await.map_err(ParseFailure::Refused)?
    }

    /// Checks a value of a body against the input schema. Returns the violations to report.
    ///
    /// # Errors
    /// 400 `InvalidInput` with the violations, if inputs are enforced; 413 `PayloadTooLarge` for an input whose check
    /// takes more fuel or memory than allowed; those of [`CheckScheduler::run`].
    pub async fn check_input(
        &mut self,
        contract: &OperationContract,
        body: BodyTape,
        node: Node,
    ) -> Result<Vec<Violation>> {
        self.check(contract, ContractSide::Input, body, node).await
    }

    /// Checks a value of a body against the output schema. Returns the violations to report.
    ///
    /// # Errors
    /// 502 `AgentError`, if outputs are enforced; those of [`CheckScheduler::run`].
    pub async fn check_output(
        &mut self,
        contract: &OperationContract,
        body: BodyTape,
        node: Node,
    ) -> Result<Vec<Violation>> {
        self.check(contract, ContractSide::Output, body, node).await
    }

    async fn check(
        &mut self,
        contract: &OperationContract,
        side: ContractSide,
        body: BodyTape,
        node: Node,
    ) -> Result<Vec<Violation>> {
        let Some(schema) = contract.schema(side) else { return Ok(Vec::new()) };
        let max_fuel = contract.max_fuel(body.body().len());
        self.begin_checks();
        match self.check_inline(schema.program(), &body.tape, node, max_fuel) {
            Ok(outcome) => contract.verdict(side, outcome),
            Err(evaluation) => {
                let nodes = Vec::from([node]);
                let work = SuspendedChecks::new(
                    schema.program(),
                    body,
                    nodes,
                    Vec::new(),
                    evaluation,
                    max_fuel,
                    self.accounts,
                );
                let outcomes = Box::pin(self.suspend(work)).await??;
                outcomes.into_iter().next().map_or(Ok(Vec::new()), |outcome| contract.verdict(side, outcome))
            }
        }
    }

    /// Checks several values of a body against the input schema, which together may take what one body may. Returns for
    /// each what [`CallChecks::check_input`] returns.
    ///
    /// # Errors
    /// Those of [`CheckScheduler::run`].
    pub async fn check_items(
        &mut self,
        contract: &OperationContract,
        body: BodyTape,
        nodes: Vec<Node>,
    ) -> Result<Vec<Result<Vec<Violation>>>> {
        let side = ContractSide::Input;
        let Some(schema) = contract.schema(side) else {
            return Ok(nodes.iter().map(|_| Ok(Vec::new())).collect());
        };
        let mut fuel_left = contract.max_fuel(body.body().len());
        let mut outcomes = Vec::with_capacity(nodes.len());
        self.begin_checks();
        for node in &nodes {
            let before = self.slice_left;
            match self.check_inline(schema.program(), &body.tape, *node, fuel_left) {
                Ok(outcome) => {
                    fuel_left = fuel_left.saturating_sub(before - self.slice_left);
                    outcomes.push(outcome);
                }
                Err(evaluation) => {
                    let work = SuspendedChecks::new(
                        schema.program(),
                        body,
                        nodes,
                        outcomes,
                        evaluation,
                        fuel_left,
                        self.accounts,
                    );
                    outcomes = Box::pin(self.suspend(work)).await??;
                    break;
                }
            }
        }
        Ok(outcomes.into_iter().map(|outcome| contract.verdict(side, outcome)).collect())
    }

    /// Sees to it that a body whose parsing took the slice is not suspended once more for a check that takes little.
    fn begin_checks(&mut self) {
        self.slice_left = self.slice_left.max(SLICE / 2);
    }

    /// Runs a check as far as the slice goes; returns the outcome, or the check that has not ended.
    fn check_inline(
        &mut self,
        program: &Program,
        tape: &Tape,
        node: Node,
        max_fuel: u64,
    ) -> std::result::Result<Outcome, Box<Evaluation>> {
        let mut evaluation = Evaluation::new(node, max_fuel);
        let result = evaluation.resume(program, tape, self.slice_left);
        self.slice_left = self.slice_left.saturating_sub(evaluation.fuel_used());
        match result {
            Poll::Ready(outcome) => Ok(outcome),
            Poll::Pending => Err(Box::new(evaluation)),
        }
    }

    /// Converts a whole body for a front end that needs it so, and counts its memory.
    ///
    /// # Errors
    /// There is no memory or time for it.
    pub async fn to_value(&mut self, body: BodyTape) -> Result<CountedValue> {
        let BodyTape { tape, mut memory } = body;
        let entries = tape.entry_count();
        memory.count(tape.memory() + entries * VALUE_BYTES, self.accounts)?;
        let value = if entries <= INLINE_ENTRIES {
            tape.to_value(Tape::ROOT)
        } else {
            Box::pin(self.suspend(SuspendedConversion(tape))).await?
        };
        Ok(CountedValue { value, _memory: memory })
    }
}

/// A value, and its memory, which is counted until this is dropped.
#[derive(Debug)]
pub struct CountedValue {
    /// The value.
    pub value: Value,
    _memory: BodyMemory,
}

fn not_json(error: TapeError) -> ParseFailure {
    ParseFailure::NotJson(invalid_json(error))
}

/// A body that is being parsed.
struct SuspendedParsing {
    parser: TapeParser,
    memory: BodyMemory,
}

impl SuspendedWork for SuspendedParsing {
    type Output = std::result::Result<BodyTape, ParseFailure>;

    fn resume(&mut self, slice: u64) -> Poll<Self::Output> {
        let result = self.parser.resume(&mut Fuel::new(slice));
        let bytes = match &result {
            Poll::Ready(Ok(tape)) => tape.memory(),
            _ => self.parser.memory(),
        };
        if let Err(fault) = self.memory.grow_to(bytes) {
            return Poll::Ready(Err(ParseFailure::Refused(fault)));
        }
        result.map(|parsed| {
            let memory = std::mem::take(&mut self.memory);
            parsed.map(|tape| BodyTape { tape, memory }).map_err(not_json)
        })
    }
}

/// Checks of values of one body, one after the other.
struct SuspendedChecks {
    program: Arc<Program>,
    body: BodyTape,
    nodes: Vec<Node>,
    outcomes: Vec<Outcome>,
    /// That of the node after those that have outcomes.
    evaluation: Box<Evaluation>,
    /// Fuel of the check that runs and of those that follow.
    fuel_left: u64,
    /// Memory of the violations that were found.
    violation_bytes: usize,
}

impl SuspendedChecks {
    fn new(
        program: &Arc<Program>,
        body: BodyTape,
        nodes: Vec<Node>,
        outcomes: Vec<Outcome>,
        evaluation: Box<Evaluation>,
        fuel_left: u64,
        accounts: &dyn MemoryAccounts,
    ) -> Self {
        let mut body = body;
        body.memory.open(accounts);
        Self { program: Arc::clone(program), body, nodes, outcomes, evaluation, fuel_left, violation_bytes: 0 }
    }
}

impl SuspendedWork for SuspendedChecks {
    type Output = Result<Vec<Outcome>>;

    fn resume(&mut self, slice: u64) -> Poll<Self::Output> {
        let mut slice_left = slice;
        loop {
            let before = self.evaluation.fuel_used();
            let result = self.evaluation.resume(&self.program, &self.body.tape, slice_left);
            let used = self.evaluation.fuel_used();
            slice_left = slice_left.saturating_sub(used - before);
            let bytes = self.body.tape.memory() + self.evaluation.memory() + self.violation_bytes;
            if let Err(fault) = self.body.memory.grow_to(bytes) {
                return Poll::Ready(Err(fault));
            }
            let Poll::Ready(outcome) = result else { return Poll::Pending };
            if let Outcome::Invalid(violations) = &outcome {
                let texts = violations.iter().map(|found| VIOLATION_BYTES + found.pointer.len() + found.message.len());
                self.violation_bytes += texts.sum::<usize>();
            }
            self.outcomes.push(outcome);
            self.fuel_left = self.fuel_left.saturating_sub(used);
            let Some(next) = self.nodes.get(self.outcomes.len()) else {
                return Poll::Ready(Ok(std::mem::take(&mut self.outcomes)));
            };
            *self.evaluation = Evaluation::new(*next, self.fuel_left);
            if slice_left == 0 {
                return Poll::Pending;
            }
        }
    }
}

/// A body that is being converted, which happens at once.
struct SuspendedConversion(Tape);

impl SuspendedWork for SuspendedConversion {
    type Output = Value;

    fn resume(&mut self, _: u64) -> Poll<Value> {
        Poll::Ready(self.0.to_value(Tape::ROOT))
    }
}
