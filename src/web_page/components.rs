//! Small parts of pages.

use maud::{Markup, Render, html};

/// How a state is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Nothing to say about it.
    Neutral,
    /// As it should be.
    Good,
    /// Somebody should look at it.
    Warning,
    /// Something fails.
    Bad,
}

impl Notice {
    fn class(self) -> &'static str {
        match self {
            Self::Neutral => "",
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Bad => "bad",
        }
    }
}

/// A word for a state. The word itself says what the colour says.
#[derive(Clone, Copy, Debug)]
pub struct Badge<'a> {
    /// How the state is shown.
    pub notice: Notice,
    /// The word.
    pub text: &'a str,
}

impl Render for Badge<'_> {
    fn render(&self) -> Markup {
        html! { span class={ "badge " (self.notice.class()) } { (self.text) } }
    }
}

/// Returns a paragraph that stands out. Screen readers announce a warning and a failure.
pub fn notice(kind: Notice, content: &Markup) -> Markup {
    let role = if matches!(kind, Notice::Warning | Notice::Bad) { "alert" } else { "status" };
    html! { div class={ "notice " (kind.class()) } role=(role) { (content) } }
}

/// Returns names with their values; rows without a value are left out.
pub fn facts<'a>(rows: impl IntoIterator<Item = (&'a str, Option<Markup>)>) -> Markup {
    html! {
        dl .facts {
            @for (name, value) in rows {
                @if let Some(value) = value { dt { (name) } dd { (value) } }
            }
        }
    }
}

/// Returns an item of the list of what needs attention.
pub fn attention_item(badge: Badge<'_>, content: &Markup) -> Markup {
    html! { li { (badge) span { (content) } } }
}

/// Returns a labelled text field.
pub fn text_field(name: &str, label: &str, value: &str) -> Markup {
    html! {
        .field {
            label for={ "field-" (name) } { (label) }
            input type="text" id={ "field-" (name) } name=(name) value=(value) autocomplete="off";
        }
    }
}

/// Returns the links to the first page and to the next one, where there are others.
pub fn pager(first: Option<&str>, next: Option<&str>) -> Markup {
    html! {
        @if first.is_some() || next.is_some() {
            nav .pager aria-label="Pages of the list" {
                @if let Some(first) = first { a .button href=(first) { "First page" } }
                @if let Some(next) = next { a .button rel="next" href=(next) { "Next page" } }
            }
        }
    }
}

/// Returns a labelled list of choices. The first choice is any of them.
pub fn select_field<'a>(name: &str, label: &str, value: &str, choices: impl IntoIterator<Item = &'a str>) -> Markup {
    html! {
        .field {
            label for={ "field-" (name) } { (label) }
            select id={ "field-" (name) } name=(name) {
                option value="" { "any" }
                @for choice in choices {
                    option value=(choice) selected[choice == value] { (choice) }
                }
            }
        }
    }
}
