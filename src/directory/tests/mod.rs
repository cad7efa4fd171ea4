//! The faces of discovery.
