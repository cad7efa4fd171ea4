//! Attacks on a running gateway with the default bounds: documents that cost memory, and documents that cost time.
//! Each attack prints what it costs.

mod documents;
