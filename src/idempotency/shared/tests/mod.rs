//! The shared store.
