//! Which text of an agent a caller may read.

use crate::{fault::public_message, values::contains_known_secret};
use std::borrow::Cow;

/// Returns the part of `text` that a caller may read: without internals, and without any secret of the gateway.
pub(super) fn public_text(text: &str) -> Option<Cow<'_, str>> {
    if contains_known_secret(text.as_bytes()) { None } else { public_message(text) }
}
