//! Who publishes.

use std::sync::Arc;

/// An authenticated caller that publishes.
#[derive(Clone, Copy, Debug)]
pub struct Publisher<'a> {
    /// Full id of the caller, such as `key:team-a`, which the rules of publishing name.
    pub id: &'a str,
    /// Owner of what the caller publishes: the id, or the user of a client.
    pub owner_key: &'a str,
    /// Groups of the caller.
    pub groups: &'a [Arc<str>],
}
