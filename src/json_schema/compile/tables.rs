//! Tables of `enum` and of the members of objects.

use super::{CompileError, Compiler, ENTRY_BYTES, PatternIndex, PendingBlock, keywords::Keyword, to_index};
use crate::{
    draft::Draft,
    program::{BlockId, EnumTable, Instruction, KnownText, MemberRule, MembersTable},
    schema_index::push_segment,
    value_hash::hash_value,
};
use serde_json::{Map, Value};

/// Up to so many strings or names are compared one by one.
const MAX_COMPARED: usize = 8;

impl<'a> Compiler<'a, '_> {
    /// Returns the index of a table of these values.
    pub(super) fn enum_table(&mut self, options: &'a [Value]) -> Result<u32, CompileError> {
        let mut table = EnumTable::default();
        let mut strings = Vec::new();
        for option in options {
            self.charge(1, ENTRY_BYTES)?;
            match option {
                Value::Null => table.has_null = true,
                Value::Bool(false) => table.has_false = true,
                Value::Bool(true) => table.has_true = true,
                Value::String(text) => {
                    self.charge(text.len() / 64, text.len())?;
                    table.max_string = table.max_string.max(text.len());
                    strings.push(text.as_bytes().into());
                }
                Value::Number(_) => {
                    table.numbers.insert(hash_value(option));
                }
                Value::Array(_) | Value::Object(_) => {
                    self.charge(count_values(option), 0)?;
                    table.has_arrays |= option.is_array();
                    table.has_objects |= option.is_object();
                    table.structures.insert(hash_value(option));
                }
            }
        }
        if strings.len() <= MAX_COMPARED {
            table.few_strings = strings.into_iter().map(KnownText::new).collect();
        } else {
            table.strings = strings.into_iter().collect();
        }
        self.charge(1, size_of::<EnumTable>())?;
        self.enums.push(table);
        to_index(self.enums.len() - 1)
    }

    /// Adds the instruction for the members of objects, if there is one.
    pub(super) fn compile_members(
        &mut self,
        siblings: &'a Map<String, Value>,
        block: PendingBlock<'a>,
        draft: Draft,
        has_validation: bool,
        to: &mut Vec<Instruction>,
    ) -> Result<(), CompileError> {
        let keyword = |name: &'static str, value| Keyword { name, value, siblings, block, draft };
        let mut table = MembersTable::default();
        let mut rules: Vec<(&'a str, MemberRule)> = Vec::new();
        if let Some(value) = siblings.get("properties") {
            let Value::Object(properties) = value else {
                return Err(self.wrong(keyword("properties", value), "an object"));
            };
            for (name, schema) in properties {
                self.charge(1, name.len() + ENTRY_BYTES)?;
                let target = self.child_block(schema, block)?;
                rules.push((name, MemberRule { block: Some(target), required: u32::MAX }));
            }
        }
        if let Some(value) = siblings.get("required").filter(|_| has_validation) {
            table.required = self.names(keyword("required", value), value)?;
            let Value::Array(names) = value else { return Ok(()) };
            self.add_required(names, &table.required, &mut rules)?;
        }
        if let Some(value) = siblings.get("patternProperties").filter(|_| draft.has_keyword("patternProperties")) {
            self.compile_pattern_properties(keyword("patternProperties", value), &mut table)?;
        }
        if let Some(value) = siblings.get("additionalProperties") {
            let target = self.child_block(value, block)?;
            // A name that a pattern out of force would have matched is not additional.
            table.additional = Some(if table.has_unsupported_pattern { BlockId::TRUE } else { target });
        }
        if rules.is_empty() && table.patterns.is_empty() && table.additional.is_none() && !table.has_unsupported_pattern
        {
            return Ok(());
        }
        table.max_name = rules.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        let rules = rules.into_iter().map(|(name, rule)| (name.as_bytes().into(), rule));
        if rules.len() <= MAX_COMPARED {
            table.few = rules.map(|(name, rule)| (KnownText::new(name), rule)).collect();
        } else {
            table.many = rules.collect();
        }
        self.charge(1, size_of::<MembersTable>())?;
        to.push(Instruction::Members(to_index(self.members.len())?));
        self.members.push(table);
        Ok(())
    }

    fn add_required(
        &mut self,
        names: &'a [Value],
        distinct: &[Box<str>],
        rules: &mut Vec<(&'a str, MemberRule)>,
    ) -> Result<(), CompileError> {
        let by_name: std::collections::HashMap<&str, usize> =
            rules.iter().enumerate().map(|(at, (name, _))| (*name, at)).collect();
        let mut added = std::collections::HashSet::new();
        for name in names.iter().filter_map(Value::as_str) {
            self.charge(1, ENTRY_BYTES)?;
            let Ok(index) = distinct.binary_search_by_key(&name, |known| known) else { continue };
            let required = to_index(index)?;
            match by_name.get(name).and_then(|at| rules.get_mut(*at)) {
                Some((_, rule)) => rule.required = required,
                None if added.insert(name) => rules.push((name, MemberRule { block: None, required })),
                None => {}
            }
        }
        Ok(())
    }

    fn compile_pattern_properties(
        &mut self,
        keyword: Keyword<'a>,
        table: &mut MembersTable,
    ) -> Result<(), CompileError> {
        let Value::Object(rules) = keyword.value else { return Err(self.wrong(keyword, "an object")) };
        let schema = keyword.block.location.schema;
        for (pattern, subschema) in rules {
            self.charge(1, pattern.len() + ENTRY_BYTES)?;
            let target = self.child_block(subschema, keyword.block)?;
            let pointer = |compiler: &Self| {
                let mut pointer = compiler.pointer_in(schema, "patternProperties");
                push_segment(&mut pointer, pattern);
                pointer
            };
            match self.pattern(pattern, &pointer)? {
                PatternIndex::Served(index) => table.patterns.push((index, target)),
                PatternIndex::Unsupported(why) => {
                    table.has_unsupported_pattern = true;
                    self.report_unsupported(pointer(self), why);
                }
            }
        }
        Ok(())
    }
}

fn count_values(value: &Value) -> usize {
    let within: usize = match value {
        Value::Array(items) => items.iter().map(count_values).sum(),
        Value::Object(members) => members.values().map(count_values).sum(),
        _ => 0,
    };
    within + 1
}
