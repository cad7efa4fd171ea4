//! Counters, lines and what must not be in them.

mod access;
mod metrics;
mod redaction;
