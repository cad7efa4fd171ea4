//! JSON Schema, compiled and metered.
//!
//! A schema becomes a flat program; a JSON text becomes a [`tape`](tape::Tape). A [`Check`](machine::Check) runs the
//! program over the tape. Everything that takes time takes fuel, a check can be suspended after each slice of fuel, and
//! its memory is bounded whatever the schema and the input are. This crate does no I/O.

pub mod fuel;
pub mod tape;
pub mod pattern;
pub mod format;
pub mod draft;
pub mod metaschema;
