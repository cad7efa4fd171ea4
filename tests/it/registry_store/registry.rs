//! The registry on both stores.
