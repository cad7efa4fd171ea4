//! Compiles a schema to a program. References are resolved once. A subschema becomes one block for each dynamic scope
//! in which it can be reached, so that the program has no dynamic references. Compiling takes fuel and memory.

mod cycles;
mod keywords;
mod scopes;
mod tables;

use crate::{
    block_summary::BlockSummary,
    draft::Draft,
    fuel::Fuel,
    pattern::{Pattern, PatternError},
    program::{
        Block, BlockId, Conditional, ContainsRule, DependencyTable, EnumTable, Instruction, ListRange, MembersTable,
        Program, UnsupportedKeyword,
    },
    schema_index::{IndexError, SchemaIndex, SchemaLocation, address_of, push_segment, shorten},
};
use scopes::{ScopeId, Scopes};
use serde_json::Value;
use std::{collections::HashMap, fmt, sync::Arc};

/// Units of fuel for each block, instruction or entry of a table.
const STEP_COST: u64 = 20;
/// Memory of a block with its entry in the index of positions.
const BLOCK_BYTES: usize = size_of::<Block>() + 32;
/// Memory of an entry of a hash table beside its own bytes.
const ENTRY_BYTES: usize = 48;
/// Maximum length of a chain of references that have nothing beside them.
const MAX_REFERENCE_CHAIN: usize = 10_000;
/// Maximum memory of one compiled pattern.
const MAX_PATTERN_BYTES: usize = 4 << 20;

/// Whether `format` is an assertion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FormatAssertion {
    /// As the draft says: before 2019-09.
    #[default]
    ByDraft,
    /// Always.
    Always,
}

/// How a schema is compiled.
#[derive(Clone, Copy, Debug)]
pub struct CompileOptions {
    /// The draft of a schema that names none.
    pub draft: Draft,
    /// Whether `format` is an assertion.
    pub formats: FormatAssertion,
    /// Maximum memory of the program, in bytes.
    pub max_memory: usize,
    /// Maximum fuel.
    pub max_fuel: u64,
}

impl Default for CompileOptions {
    fn default() -> Self {
        Self {
            draft: Draft::Draft202012,
            formats: FormatAssertion::ByDraft,
            max_memory: 64 << 20,
            max_fuel: 500_000_000,
        }
    }
}

/// Why a schema has no program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// The schema is not valid.
    Invalid {
        /// JSON Pointer of the wrong value in the schema.
        pointer: String,
        /// What is wrong.
        reason: String,
    },
    /// The schema refers to itself for the same value, so that a check would never end.
    Endless {
        /// JSON Pointer of a subschema on the way.
        pointer: String,
    },
    /// The program would be larger than allowed.
    OutOfMemory,
    /// Compiling takes more fuel than allowed.
    OutOfFuel,
}

impl fmt::Display for CompileError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { pointer, reason } if pointer.is_empty() => to.write_str(reason),
            Self::Invalid { pointer, reason } => write!(to, "at {pointer}: {reason}"),
            Self::Endless { pointer } => {
                let place = if pointer.is_empty() { String::new() } else { format!("at {pointer}: ") };
                write!(to, "{place}the schema refers to itself for the same value: validation would never end")
            }
            Self::OutOfMemory => to.write_str("the compiled schema is too large"),
            Self::OutOfFuel => to.write_str("compiling the schema takes too long"),
        }
    }
}

impl std::error::Error for CompileError {}

impl From<IndexError> for CompileError {
    fn from(error: IndexError) -> Self {
        match error {
            IndexError::Invalid(pointer, reason) => Self::Invalid { pointer, reason },
            IndexError::OutOfFuel => Self::OutOfFuel,
        }
    }
}

impl Program {
    /// Compiles a schema.
    ///
    /// # Errors
    /// The schema is not valid, refers to itself without end, or exceeds a bound of `options`.
    pub fn compile(schema: &Arc<Value>, options: &CompileOptions) -> Result<Self, CompileError> {
        let mut fuel = Fuel::new(options.max_fuel);
        let index = SchemaIndex::build(schema, options.draft, &mut fuel)?;
        let mut compiler = Compiler::new(index, options, fuel);
        let root = compiler.compile_all()?;
        compiler.into_program(schema, root)
    }
}

/// The index of a compiled pattern, or why the pattern cannot be served.
#[derive(Clone)]
enum PatternIndex {
    Served(u32),
    Unsupported(String),
}

/// A block that is to be compiled.
#[derive(Clone, Copy)]
struct PendingBlock<'a> {
    location: SchemaLocation<'a>,
    scope: ScopeId,
    id: BlockId,
}

struct Compiler<'a, 'o> {
    index: SchemaIndex<'a>,
    options: &'o CompileOptions,
    fuel: Fuel,
    memory: usize,
    scopes: Scopes<'a>,
    ids: HashMap<(usize, ScopeId), BlockId>,
    queue: Vec<PendingBlock<'a>>,
    blocks: Vec<Block>,
    code: Vec<Instruction>,
    lists: Vec<BlockId>,
    bounds: Vec<crate::number::Bound>,
    divisors: Vec<crate::number::Divisor>,
    patterns: Vec<Pattern>,
    patterns_by_text: HashMap<&'a str, PatternIndex>,
    enums: Vec<EnumTable>,
    members: Vec<MembersTable>,
    dependencies: Vec<DependencyTable>,
    contains: Vec<ContainsRule>,
    conditionals: Vec<Conditional>,
    unsupported: Vec<UnsupportedKeyword>,
}

/// Maximum number of keywords that are reported as not in force.
const MAX_UNSUPPORTED: usize = 100;

impl<'a, 'o> Compiler<'a, 'o> {
    fn new(index: SchemaIndex<'a>, options: &'o CompileOptions, fuel: Fuel) -> Self {
        let scopes = Scopes::new(index.has_dynamic_references());
        let never = Block { end: 1, summary: BlockSummary::of(&[Instruction::Never]), ..Block::EMPTY };
        Self {
            index,
            options,
            fuel,
            memory: size_of::<Program>(),
            scopes,
            ids: HashMap::new(),
            queue: Vec::new(),
            blocks: vec![Block::EMPTY, never],
            code: vec![Instruction::Never],
            lists: Vec::new(),
            bounds: Vec::new(),
            divisors: Vec::new(),
            patterns: Vec::new(),
            patterns_by_text: HashMap::new(),
            enums: Vec::new(),
            members: Vec::new(),
            dependencies: Vec::new(),
            contains: Vec::new(),
            conditionals: Vec::new(),
            unsupported: Vec::new(),
        }
    }

    fn compile_all(&mut self) -> Result<BlockId, CompileError> {
        let Some(root) = self.index.root() else { return Ok(BlockId::TRUE) };
        if !matches!(root.schema, Value::Object(_) | Value::Bool(_)) {
            return Err(invalid(String::new(), "a schema must be an object, true or false"));
        }
        let root = self.block_of(root, ScopeId::EMPTY)?;
        let mut next = 0;
        while let Some(&pending) = self.queue.get(next) {
            next += 1;
            self.compile_block(pending)?;
        }
        Ok(root)
    }

    /// Takes fuel for `steps` steps and memory for the results.
    fn charge(&mut self, steps: usize, bytes: usize) -> Result<(), CompileError> {
        self.fuel.charge(steps as u64 * STEP_COST);
        self.memory = self.memory.saturating_add(bytes);
        if self.memory > self.options.max_memory {
            return Err(CompileError::OutOfMemory);
        }
        if self.fuel.is_spent() {
            return Err(CompileError::OutOfFuel);
        }
        Ok(())
    }

    /// Returns the block of a subschema that is entered from `scope`, and has it compiled.
    fn block_of(&mut self, location: SchemaLocation<'a>, scope: ScopeId) -> Result<BlockId, CompileError> {
        let (mut location, mut scope) = (location, scope);
        for _ in 0..MAX_REFERENCE_CHAIN {
            self.charge(1, 0)?;
            scope = self.scopes.enter(scope, location.resource, &self.index);
            let keywords = match location.schema {
                Value::Bool(true) => return Ok(BlockId::TRUE),
                Value::Bool(false) => return Ok(BlockId::FALSE),
                Value::Object(keywords) if keywords.is_empty() => return Ok(BlockId::TRUE),
                Value::Object(keywords) => keywords,
                _ => {
                    let pointer = self.index.pointer(self.index.position(location.schema));
                    return Err(invalid(pointer, "a schema must be an object, true or false"));
                }
            };
            // A reference that has nothing beside it needs no block of its own.
            match keywords.get("$ref") {
                Some(Value::String(reference)) if keywords.len() == 1 => {
                    location = self.resolve(reference, location, "$ref")?;
                }
                _ => return self.intern(location, scope),
            }
        }
        Err(CompileError::Endless { pointer: self.index.pointer(self.index.position(location.schema)) })
    }

    fn intern(&mut self, location: SchemaLocation<'a>, scope: ScopeId) -> Result<BlockId, CompileError> {
        let key = (address_of(location.schema), scope);
        if let Some(id) = self.ids.get(&key) {
            return Ok(*id);
        }
        self.charge(1, BLOCK_BYTES)?;
        let id = BlockId(u32::try_from(self.blocks.len()).map_err(|_| CompileError::OutOfMemory)?);
        let position = self.index.position(location.schema);
        self.blocks.push(Block { position, ..Block::EMPTY });
        self.ids.insert(key, id);
        self.queue.push(PendingBlock { location, scope, id });
        Ok(id)
    }

    fn resolve(
        &mut self,
        reference: &str,
        from: SchemaLocation<'a>,
        keyword: &str,
    ) -> Result<SchemaLocation<'a>, CompileError> {
        self.charge(1 + reference.len() / 16, 0)?;
        self.index
            .resolve(reference, from.resource)
            .map_err(|reason| invalid(self.pointer_in(from.schema, keyword), &reason))
    }

    /// Returns the target of a dynamic reference in a scope.
    fn resolve_dynamic(
        &mut self,
        reference: &str,
        from: PendingBlock<'a>,
        keyword: &str,
    ) -> Result<SchemaLocation<'a>, CompileError> {
        let target = self.resolve(reference, from.location, keyword)?;
        let anchor = match keyword {
            "$recursiveRef" => "",
            _ => reference.split_once('#').map_or("", |(_, fragment)| fragment),
        };
        if keyword == "$dynamicRef" && (anchor.is_empty() || anchor.starts_with('/')) {
            return Ok(target);
        }
        // Only a target that has the dynamic anchor itself is looked up in the scope.
        let own = self.index.dynamic_anchor(target.resource, anchor);
        if !own.is_some_and(|own| std::ptr::eq(own.schema, target.schema)) {
            return Ok(target);
        }
        // The scope of a reference includes the resource of its target only when that has been entered.
        let bound = self.scopes.binding(from.scope, anchor);
        Ok(bound.and_then(|resource| self.index.dynamic_anchor(resource, anchor)).unwrap_or(target))
    }

    fn compile_block(&mut self, pending: PendingBlock<'a>) -> Result<(), CompileError> {
        let Value::Object(keywords) = pending.location.schema else { return Ok(()) };
        let mut instructions = self.compile_keywords(keywords, pending)?;
        instructions.sort_by_key(Instruction::rank);
        self.charge(instructions.len(), instructions.len() * size_of::<Instruction>())?;
        let start = self.code.len();
        self.code.append(&mut instructions);
        let (start, end) = (to_index(start)?, to_index(self.code.len())?);
        let summary = BlockSummary::of(self.code.get(start as usize..).unwrap_or_default());
        if let Some(block) = self.blocks.get_mut(pending.id.0 as usize) {
            *block = Block { start, end, summary, ..*block };
        }
        Ok(())
    }

    /// Returns the blocks of several subschemas, as a list.
    fn list_of(&mut self, schemas: &'a [Value], outer: PendingBlock<'a>) -> Result<ListRange, CompileError> {
        let blocks = schemas.iter().map(|schema| self.child_block(schema, outer)).collect::<Result<Vec<_>, _>>()?;
        self.charge(blocks.len(), blocks.len() * size_of::<BlockId>())?;
        let start = to_index(self.lists.len())?;
        self.lists.extend(blocks);
        Ok(ListRange { start, end: to_index(self.lists.len())? })
    }

    fn child_block(&mut self, schema: &'a Value, outer: PendingBlock<'a>) -> Result<BlockId, CompileError> {
        let location = self.index.child(outer.location.resource, schema);
        self.block_of(location, outer.scope)
    }

    /// Returns a compiled pattern.
    fn pattern(&mut self, text: &'a str, pointer: &dyn Fn(&Self) -> String) -> Result<PatternIndex, CompileError> {
        if let Some(known) = self.patterns_by_text.get(text) {
            return Ok(known.clone());
        }
        self.charge(1 + text.len() / 8, ENTRY_BYTES)?;
        let room = self.options.max_memory.saturating_sub(self.memory).min(MAX_PATTERN_BYTES);
        let compiled = match Pattern::compile(text, &mut self.fuel, room) {
            Ok(pattern) => {
                let index = to_index(self.patterns.len())?;
                self.charge(0, pattern.memory())?;
                self.patterns.push(pattern);
                PatternIndex::Served(index)
            }
            Err(PatternError::Syntax(why)) => {
                let reason = format!("'{}' is not a pattern of ECMA-262: {why}", shorten(text, 60));
                return Err(invalid(pointer(self), &reason));
            }
            Err(PatternError::Unsupported(why)) => {
                PatternIndex::Unsupported(format!("the pattern '{}' is not supported: {why}", shorten(text, 60)))
            }
        };
        self.charge(0, 0)?;
        self.patterns_by_text.insert(text, compiled.clone());
        Ok(compiled)
    }

    fn report_unsupported(&mut self, pointer: String, reason: String) {
        if self.unsupported.len() < MAX_UNSUPPORTED {
            self.unsupported.push(UnsupportedKeyword { pointer, reason });
        }
    }

    /// Returns the JSON Pointer of a keyword.
    fn pointer_in(&self, schema: &Value, keyword: &str) -> String {
        let mut pointer = self.index.pointer(self.index.position(schema));
        push_segment(&mut pointer, keyword);
        pointer
    }

    fn into_program(mut self, schema: &Arc<Value>, root: BlockId) -> Result<Program, CompileError> {
        if let Some(block) = cycles::find_endless(&self) {
            let position = self.blocks.get(block.0 as usize).map_or(0, |block| block.position);
            return Err(CompileError::Endless { pointer: self.index.pointer(position) });
        }
        let positions = self.index.into_positions();
        self.memory += positions.iter().map(|(_, name)| size_of::<(u32, Box<str>)>() + name.len()).sum::<usize>();
        if self.memory > self.options.max_memory {
            return Err(CompileError::OutOfMemory);
        }
        Ok(Program {
            schema: Arc::clone(schema),
            root,
            blocks: self.blocks.into(),
            code: self.code.into(),
            lists: self.lists.into(),
            bounds: self.bounds.into(),
            divisors: self.divisors.into(),
            patterns: self.patterns.into(),
            enums: self.enums.into(),
            members: self.members.into(),
            dependencies: self.dependencies.into(),
            contains: self.contains.into(),
            conditionals: self.conditionals.into(),
            positions,
            unsupported: self.unsupported,
            memory: self.memory,
            compile_fuel: self.fuel.used(),
        })
    }
}

fn invalid(pointer: String, reason: &str) -> CompileError {
    CompileError::Invalid { pointer, reason: reason.to_owned() }
}

fn to_index(length: usize) -> Result<u32, CompileError> {
    u32::try_from(length).map_err(|_| CompileError::OutOfMemory)
}
