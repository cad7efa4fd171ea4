//! Tests of the module.

mod sampling;
mod span_export;
mod trace_context;
