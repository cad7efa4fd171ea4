//! Tests of patterns.
