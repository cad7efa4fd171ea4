//! Accessors of JSON members of foreign documents, shared with the resolver.

pub(super) use crate::names::members::{get, objects, quoted, text, words};
