//! Tests of the lists.
