//! Keywords and their instructions.

use super::{CompileError, Compiler, ENTRY_BYTES, FormatAssertion, PatternIndex, PendingBlock, invalid, to_index};
use crate::{
    draft::Draft,
    format::Format,
    number::{Bound, Divisor},
    program::{BlockId, Conditional, ContainsRule, DependencyTable, Instruction, ListRange, type_bits},
};
use serde_json::{Map, Number, Value};

/// One keyword of a block.
#[derive(Clone, Copy)]
pub(super) struct Keyword<'a> {
    pub(super) name: &'a str,
    pub(super) value: &'a Value,
    pub(super) siblings: &'a Map<String, Value>,
    pub(super) block: PendingBlock<'a>,
    pub(super) draft: Draft,
}

impl<'a> Compiler<'a, '_> {
    /// Returns the instructions of the keywords of one subschema.
    pub(super) fn compile_keywords(
        &mut self,
        siblings: &'a Map<String, Value>,
        block: PendingBlock<'a>,
    ) -> Result<Vec<Instruction>, CompileError> {
        let resource = block.location.resource;
        let (draft, vocabularies) = (self.index.draft(resource), self.index.vocabularies(resource));
        let mut instructions = Vec::new();
        let hides_siblings = draft.ref_hides_siblings() && siblings.get("$ref").is_some_and(Value::is_string);
        for (name, value) in siblings {
            let keyword = Keyword { name, value, siblings, block, draft };
            self.charge(1, 0)?;
            if hides_siblings && name != "$ref" || !draft.has_keyword(name) {
                continue;
            }
            let before = instructions.len();
            self.compile_in_place(keyword, &mut instructions)?;
            if instructions.len() > before {
                continue;
            }
            self.compile_structure(keyword, &mut instructions)?;
            if instructions.len() == before && vocabularies.validation {
                self.compile_assertion(keyword, &mut instructions)?;
            }
            if name == "format" && (vocabularies.format_assertion || self.asserts_formats(draft)) {
                self.compile_format(keyword, &mut instructions)?;
            }
        }
        if !hides_siblings {
            self.compile_members(siblings, block, draft, vocabularies.validation, &mut instructions)?;
            self.compile_contains(siblings, block, draft, &mut instructions)?;
            self.compile_items(siblings, block, draft, &mut instructions)?;
            compile_content(siblings, draft, &mut instructions);
        }
        Ok(instructions)
    }

    fn asserts_formats(&self, draft: Draft) -> bool {
        self.options.formats == FormatAssertion::Always || draft.asserts_format()
    }

    /// References and keywords that apply subschemas to the same value.
    fn compile_in_place(&mut self, keyword: Keyword<'a>, to: &mut Vec<Instruction>) -> Result<(), CompileError> {
        let Keyword { name, value, block, .. } = keyword;
        match name {
            "$ref" => {
                let location = self.resolve(self.string(keyword)?, block.location, name)?;
                self.push_reference(location, block, to)?;
            }
            "$dynamicRef" | "$recursiveRef" => {
                let location = self.resolve_dynamic(self.string(keyword)?, block, name)?;
                self.push_reference(location, block, to)?;
            }
            "allOf" => to.push(Instruction::AllOf(self.schemas(keyword)?)),
            "anyOf" => to.push(Instruction::AnyOf(self.schemas(keyword)?)),
            "oneOf" => to.push(Instruction::OneOf(self.schemas(keyword)?)),
            "not" => match self.child_block(value, block)? {
                BlockId::FALSE => {}
                BlockId::TRUE => to.push(Instruction::Never),
                target => to.push(Instruction::Not(target)),
            },
            "if" => {
                let condition = self.child_block(value, block)?;
                let mut branch = |name: &str| match keyword.siblings.get(name) {
                    Some(schema) => self.child_block(schema, block),
                    None => Ok(BlockId::TRUE),
                };
                let (then, otherwise) = (branch("then")?, branch("else")?);
                self.charge(1, size_of::<Conditional>())?;
                to.push(Instruction::If(to_index(self.conditionals.len())?));
                self.conditionals.push(Conditional { condition, then, otherwise });
            }
            "dependentSchemas" | "dependencies" => self.compile_dependencies(keyword, to)?,
            _ => {}
        }
        Ok(())
    }

    fn push_reference(
        &mut self,
        location: crate::schema_index::SchemaLocation<'a>,
        block: PendingBlock<'a>,
        to: &mut Vec<Instruction>,
    ) -> Result<(), CompileError> {
        match self.block_of(location, block.scope)? {
            BlockId::TRUE => {}
            target => to.push(Instruction::Ref(target)),
        }
        Ok(())
    }

    /// Keywords that apply subschemas to parts of the value, other than those of members and items.
    fn compile_structure(&mut self, keyword: Keyword<'a>, to: &mut Vec<Instruction>) -> Result<(), CompileError> {
        let Keyword { name, value, block, .. } = keyword;
        match name {
            "propertyNames" => match self.child_block(value, block)? {
                BlockId::TRUE => {}
                target => to.push(Instruction::PropertyNames(target)),
            },
            // `true` still counts what is left as evaluated, for the schemas around.
            "unevaluatedItems" => to.push(Instruction::UnevaluatedItems(self.child_block(value, block)?)),
            "unevaluatedProperties" => to.push(Instruction::UnevaluatedProperties(self.child_block(value, block)?)),
            _ => {}
        }
        Ok(())
    }

    /// Assertions about the value itself.
    fn compile_assertion(&mut self, keyword: Keyword<'a>, to: &mut Vec<Instruction>) -> Result<(), CompileError> {
        let Keyword { name, value, .. } = keyword;
        match name {
            "type" => to.extend(self.type_instruction(keyword)?),
            "enum" => {
                let Value::Array(options) = value else { return Err(self.wrong(keyword, "an array")) };
                let table = self.enum_table(options)?;
                to.push(Instruction::Enum { table, is_const: false });
            }
            "const" => {
                let table = self.enum_table(std::slice::from_ref(value))?;
                to.push(Instruction::Enum { table, is_const: true });
            }
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => self.compile_bound(keyword, to)?,
            "multipleOf" => to.extend(self.divisor(keyword)?),
            "minLength" => to.push(Instruction::MinLength(self.count(keyword)?)),
            "maxLength" => to.push(Instruction::MaxLength(self.count(keyword)?)),
            "minItems" => to.push(Instruction::MinItems(self.count(keyword)?)),
            "maxItems" => to.push(Instruction::MaxItems(self.count(keyword)?)),
            "minProperties" => to.push(Instruction::MinProperties(self.count(keyword)?)),
            "maxProperties" => to.push(Instruction::MaxProperties(self.count(keyword)?)),
            "uniqueItems" => match value {
                Value::Bool(true) => to.push(Instruction::UniqueItems),
                Value::Bool(false) => {}
                _ => return Err(self.wrong(keyword, "a boolean")),
            },
            "pattern" => {
                let pattern = self.string(keyword)?;
                let schema = keyword.block.location.schema;
                match self.pattern(pattern, &|compiler: &Self| compiler.pointer_in(schema, "pattern"))? {
                    PatternIndex::Served(index) => to.push(Instruction::Pattern(index)),
                    PatternIndex::Unsupported(why) => self.report_unsupported(self.pointer_in(schema, "pattern"), why),
                }
            }
            "dependentRequired" => self.compile_dependencies(keyword, to)?,
            _ => {}
        }
        Ok(())
    }

    fn compile_format(&mut self, keyword: Keyword<'a>, to: &mut Vec<Instruction>) -> Result<(), CompileError> {
        let name = self.string(keyword)?;
        to.extend(Format::named(name, keyword.draft).map(Instruction::Format));
        Ok(())
    }

    fn type_instruction(&mut self, keyword: Keyword<'a>) -> Result<Option<Instruction>, CompileError> {
        let unknown = || self.wrong(keyword, "one of array, boolean, integer, null, number, object and string");
        let bit_of = |name: &Value| -> Result<u8, CompileError> {
            Ok(match name.as_str() {
                Some("null") => type_bits::NULL,
                Some("boolean") => type_bits::BOOLEAN,
                Some("integer") => type_bits::INTEGER,
                Some("number") => type_bits::NUMBER,
                Some("string") => type_bits::STRING,
                Some("array") => type_bits::ARRAY,
                Some("object") => type_bits::OBJECT,
                _ => return Err(unknown()),
            })
        };
        let mut bits = match keyword.value {
            Value::Array(names) => names.iter().map(bit_of).try_fold(0, |bits, bit| bit.map(|bit| bits | bit))?,
            name => bit_of(name)?,
        };
        if keyword.draft == Draft::OpenApi30 && keyword.siblings.get("nullable") == Some(&Value::Bool(true)) {
            bits |= type_bits::NULL;
        }
        Ok(Some(Instruction::Type { bits, by_value: keyword.draft.integers_by_value() }))
    }

    /// In draft 4, `exclusiveMinimum` is a boolean beside `minimum`. Authors write that in later drafts, too.
    fn compile_bound(&mut self, keyword: Keyword<'a>, to: &mut Vec<Instruction>) -> Result<(), CompileError> {
        let exclusive = match keyword.name {
            "minimum" => "exclusiveMinimum",
            "maximum" => "exclusiveMaximum",
            _ if keyword.value.is_boolean() => return Ok(()),
            _ if keyword.draft.has_boolean_exclusive_bounds() => return Err(self.wrong(keyword, "a boolean")),
            own => own,
        };
        let bound = self.bound(keyword)?;
        to.push(match (exclusive, is_exclusive(keyword, exclusive)) {
            ("exclusiveMinimum", false) => Instruction::Minimum(bound),
            ("exclusiveMinimum", true) => Instruction::ExclusiveMinimum(bound),
            (_, false) => Instruction::Maximum(bound),
            (_, true) => Instruction::ExclusiveMaximum(bound),
        });
        Ok(())
    }

    fn bound(&mut self, keyword: Keyword<'a>) -> Result<u32, CompileError> {
        let bound = Bound::new(self.number(keyword)?);
        self.charge(1, size_of::<Bound>() + 32)?;
        self.bounds.push(bound);
        to_index(self.bounds.len() - 1)
    }

    fn divisor(&mut self, keyword: Keyword<'a>) -> Result<Option<Instruction>, CompileError> {
        let number = self.number(keyword)?;
        if number.as_f64().is_some_and(|value| value <= 0.0) {
            return Err(self.wrong(keyword, "greater than 0"));
        }
        let Some(divisor) = Divisor::new(number) else {
            self.report_unsupported(self.pointer(keyword), "the number has too many digits".to_owned());
            return Ok(None);
        };
        self.charge(1, size_of::<Divisor>())?;
        self.divisors.push(divisor);
        Ok(Some(Instruction::MultipleOf(to_index(self.divisors.len() - 1)?)))
    }

    fn number(&self, keyword: Keyword<'a>) -> Result<&'a Number, CompileError> {
        match keyword.value {
            Value::Number(number) => Ok(number),
            _ => Err(self.wrong(keyword, "a number")),
        }
    }

    /// Returns a count; one beyond 32 bits is as good as the largest.
    fn count(&self, keyword: Keyword<'a>) -> Result<u32, CompileError> {
        let count = match keyword.value.as_u64() {
            Some(count) => Some(u32::try_from(count).unwrap_or(u32::MAX)),
            None => keyword.value.as_f64().filter(|count| *count >= 0.0 && count.fract() == 0.0).map(|count| {
                // The conversion stops at the bounds of the type.
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
                let count = count as u32;
                count
            }),
        };
        count.ok_or_else(|| self.wrong(keyword, "an integer of at least 0"))
    }

    fn string(&self, keyword: Keyword<'a>) -> Result<&'a str, CompileError> {
        keyword.value.as_str().ok_or_else(|| self.wrong(keyword, "a string"))
    }

    fn schemas(&mut self, keyword: Keyword<'a>) -> Result<ListRange, CompileError> {
        match keyword.value {
            Value::Array(schemas) if !schemas.is_empty() => self.list_of(schemas, keyword.block),
            _ => Err(self.wrong(keyword, "an array with at least one schema")),
        }
    }

    /// Returns an array of names.
    pub(super) fn names(&mut self, keyword: Keyword<'a>, value: &'a Value) -> Result<Vec<Box<str>>, CompileError> {
        let Value::Array(names) = value else { return Err(self.wrong(keyword, "an array of strings")) };
        let mut distinct = Vec::new();
        for name in names {
            let Some(name) = name.as_str() else { return Err(self.wrong(keyword, "an array of strings")) };
            self.charge(1, name.len() + size_of::<Box<str>>())?;
            distinct.push(name.into());
        }
        distinct.sort_unstable();
        distinct.dedup();
        Ok(distinct)
    }

    fn compile_dependencies(&mut self, keyword: Keyword<'a>, to: &mut Vec<Instruction>) -> Result<(), CompileError> {
        let Value::Object(rules) = keyword.value else { return Err(self.wrong(keyword, "an object")) };
        let mut table = DependencyTable::default();
        for (name, value) in rules {
            let is_list = match keyword.name {
                "dependentRequired" => true,
                "dependencies" => value.is_array(),
                _ => false,
            };
            let name = self.dependency_name(name, &mut table)?;
            if is_list {
                let names = self.names(keyword, value)?;
                let names = names.iter().map(|name| self.dependency_name(name, &mut table));
                let names = names.collect::<Result<_, _>>()?;
                table.required.push((name, names));
            } else {
                let target = self.child_block(value, keyword.block)?;
                table.schemas.push((name, target));
            }
        }
        if !rules.is_empty() {
            self.charge(1, size_of::<DependencyTable>())?;
            to.push(Instruction::Dependencies(to_index(self.dependencies.len())?));
            self.dependencies.push(table);
        }
        Ok(())
    }

    fn dependency_name(&mut self, name: &str, table: &mut DependencyTable) -> Result<u32, CompileError> {
        self.charge(1, name.len() + ENTRY_BYTES)?;
        let next = to_index(table.names.len())?;
        table.max_name = table.max_name.max(name.len());
        Ok(*table.names.entry(name.as_bytes().into()).or_insert(next))
    }

    fn compile_contains(
        &mut self,
        siblings: &'a Map<String, Value>,
        block: PendingBlock<'a>,
        draft: Draft,
        to: &mut Vec<Instruction>,
    ) -> Result<(), CompileError> {
        let Some(value) = siblings.get("contains").filter(|_| draft.has_keyword("contains")) else { return Ok(()) };
        let target = self.child_block(value, block)?;
        let count = |name: &'static str, absent: u32| match siblings.get(name).filter(|_| draft.has_keyword(name)) {
            Some(value) => self.count(Keyword { name, value, siblings, block, draft }),
            None => Ok(absent),
        };
        let (min, max) = (count("minContains", 1)?, count("maxContains", u32::MAX)?);
        self.charge(1, size_of::<ContainsRule>())?;
        to.push(Instruction::Contains(to_index(self.contains.len())?));
        self.contains.push(ContainsRule { block: target, min, max, marks: draft == Draft::Draft202012 });
        Ok(())
    }

    /// `items` is a list in drafts before 2020-12; such a list is understood in all drafts.
    fn compile_items(
        &mut self,
        siblings: &'a Map<String, Value>,
        block: PendingBlock<'a>,
        draft: Draft,
        to: &mut Vec<Instruction>,
    ) -> Result<(), CompileError> {
        let keyword = |name: &'static str, value| Keyword { name, value, siblings, block, draft };
        let (mut prefix, mut rest) = (ListRange::default(), BlockId::TRUE);
        match siblings.get("items") {
            Some(Value::Array(schemas)) => {
                prefix = self.list_of(schemas, block)?;
                if let Some(schema) = siblings.get("additionalItems") {
                    rest = self.child_block(schema, block)?;
                }
            }
            Some(schema) => rest = self.child_block(schema, block)?,
            None => {}
        }
        if let Some(value) = siblings.get("prefixItems").filter(|_| draft.has_keyword("prefixItems")) {
            prefix = self.schemas(keyword("prefixItems", value))?;
        }
        let says_all = siblings.get("items").is_some_and(|items| !items.is_array())
            || siblings.get("items").is_some_and(Value::is_array) && siblings.contains_key("additionalItems");
        // `items: true` asserts nothing, but counts the items as evaluated.
        if prefix.start != prefix.end || says_all {
            to.push(Instruction::Items { prefix, rest, says_all });
        }
        Ok(())
    }

    /// Returns the error for a keyword whose value has a wrong form.
    pub(super) fn wrong(&self, keyword: Keyword<'_>, expected: &str) -> CompileError {
        invalid(self.pointer(keyword), &format!("must be {expected}"))
    }

    fn pointer(&self, keyword: Keyword<'_>) -> String {
        self.pointer_in(keyword.block.location.schema, keyword.name)
    }
}

/// Returns whether a keyword is the exclusive one, or has it as `true` beside it.
fn is_exclusive(keyword: Keyword<'_>, exclusive: &str) -> bool {
    keyword.name == exclusive || keyword.siblings.get(exclusive) == Some(&Value::Bool(true))
}

/// `contentEncoding` and `contentMediaType`, as far as they can be asserted.
fn compile_content(siblings: &Map<String, Value>, draft: Draft, to: &mut Vec<Instruction>) {
    if draft.asserts_content() {
        let is = |keyword: &str, value: &str| siblings.get(keyword).and_then(Value::as_str) == Some(value);
        let (base64, json) = (is("contentEncoding", "base64"), is("contentMediaType", "application/json"));
        if base64 || json {
            to.push(Instruction::Content { base64, json });
        }
    }
}
