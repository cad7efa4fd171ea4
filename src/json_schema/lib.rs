//! JSON Schema, compiled and metered.
//!
//! A schema becomes a flat [`Program`]; a JSON text becomes a [`Tape`]. An [`Evaluation`] runs the program over the tape.
//! Everything that takes time takes fuel, a check can be suspended after each slice of fuel, and its memory is bounded
//! whatever the schema and the input are. This crate does no I/O.

pub mod draft;
pub mod format;
pub mod fuel;
pub mod metaschema;
pub mod number;
pub mod pattern;
pub mod schema_index;
pub mod tape;
pub mod value_hash;

mod block_summary;
mod compile;
mod machine;
mod program;

pub use compile::{CompileError, CompileOptions, FormatAssertion};
pub use draft::Draft;
pub use machine::{Check, Evaluation, Outcome, Violation};
pub use program::{Program, UnsupportedKeyword};
pub use tape::Tape;
