//! Who publishes.

use std::sync::Arc;

/// An authenticated caller that publishes.
#[derive(Clone, Copy, Debug)]
pub struct Publisher<'a> {
    /// Full id of the caller, such as `key:team-a`.
    pub id: &'a str,
    /// Groups of the caller.
    pub groups: &'a [Arc<str>],
}
