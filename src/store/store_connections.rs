//! The connections of a store to its database.

/// How many connections a store has to its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreConnections {
    /// Connections that wait in the pool.
    pub idle: usize,
    /// Connections that operations use.
    pub used: usize,
}
