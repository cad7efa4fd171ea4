//! What bounds a page: texts are shortened, and parts that do not fit any more are left out with a sentence.

use maud::{Markup, html};
use std::borrow::Cow;

/// Maximum size of the parts of a page, in bytes of HTML. With its frame and its fixed texts, a page stays below 1 MiB.
const MAX_PARTS_SIZE: usize = 900 << 10;

/// What is left of the size of a page.
#[derive(Debug)]
pub(super) struct PageBudget {
    bytes_left: usize,
}

impl PageBudget {
    /// The budget of an empty page.
    pub(super) fn new() -> Self {
        Self { bytes_left: MAX_PARTS_SIZE }
    }

    /// Returns whether nothing more fits.
    pub(super) fn is_spent(&self) -> bool {
        self.bytes_left == 0
    }

    /// Returns the part, or a sentence if it does not fit. After a part that does not fit, no other does.
    pub(super) fn fit(&mut self, part: Markup) -> Markup {
        let size = part.0.len();
        if size <= self.bytes_left {
            self.bytes_left -= size;
            return part;
        }
        let was_spent = self.is_spent();
        self.bytes_left = 0;
        html! {
            @if !was_spent {
                p .muted { "The page is too long: the rest of this part is left out. The documents of the agent have all of it." }
            }
        }
    }
}

/// Returns the first characters of a text, with an ellipsis if there are more.
pub(super) fn shorten(text: &str, max_chars: usize) -> Cow<'_, str> {
    match text.char_indices().nth(max_chars) {
        Some((at, _)) => Cow::Owned(format!("{}…", text.get(..at).unwrap_or_default())),
        None => Cow::Borrowed(text),
    }
}
