//! Positions of values in schema documents.

use serde_json::Value;
use std::collections::HashMap;

/// The positions of values, each by the position that contains it and its name there.
#[derive(Debug, Default)]
pub(super) struct Positions<'a> {
    nodes: Vec<(u32, PositionName<'a>)>,
    by_address: HashMap<usize, u32>,
}

#[derive(Clone, Copy, Debug)]
enum PositionName<'a> {
    Root,
    Name(&'a str),
    Index(usize),
}

impl<'a> Positions<'a> {
    pub(super) fn add_root(&mut self, value: &Value) -> u32 {
        let own = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        self.insert(own, PositionName::Root, value)
    }

    pub(super) fn add(&mut self, parent: u32, name: &'a str, value: &Value) -> u32 {
        self.insert(parent, PositionName::Name(name), value)
    }

    pub(super) fn add_index(&mut self, parent: u32, index: usize, value: &Value) -> u32 {
        self.insert(parent, PositionName::Index(index), value)
    }

    fn insert(&mut self, parent: u32, name: PositionName<'a>, value: &Value) -> u32 {
        let next = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let position = *self.by_address.entry(address_of(value)).or_insert(next);
        if position == next {
            self.nodes.push((parent, name));
        }
        position
    }

    pub(super) fn of(&self, value: &Value) -> u32 {
        self.by_address.get(&address_of(value)).copied().unwrap_or_default()
    }

    pub(super) fn pointer(&self, position: u32) -> String {
        let (mut names, mut at) = (Vec::new(), position);
        while let Some((parent, name)) = self.nodes.get(at as usize) {
            match name {
                PositionName::Root => break,
                PositionName::Name(name) => names.push((*name).to_owned()),
                PositionName::Index(index) => names.push(index.to_string()),
            }
            at = *parent;
        }
        let mut pointer = String::new();
        names.iter().rev().for_each(|name| push_segment(&mut pointer, name));
        pointer
    }

    pub(super) fn into_owned(self) -> Box<[(u32, Box<str>)]> {
        let name_of = |name| match name {
            PositionName::Root => "".into(),
            PositionName::Name(name) => name.into(),
            PositionName::Index(index) => index.to_string().into(),
        };
        self.nodes.into_iter().map(|(parent, name)| (parent, name_of(name))).collect()
    }
}

/// Returns the address of a value, as its identity.
pub(crate) fn address_of(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

/// Appends one segment to a JSON Pointer (RFC 6901 §3).
pub(crate) fn push_segment(pointer: &mut String, segment: &str) {
    pointer.push('/');
    if segment.contains(['~', '/']) {
        pointer.push_str(&segment.replace('~', "~0").replace('/', "~1"));
    } else {
        pointer.push_str(segment);
    }
}
