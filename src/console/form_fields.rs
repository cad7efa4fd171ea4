//! Fields of forms with their hints and problems. A problem stands beside its field, which refers to it.

use maud::{Markup, html};

/// A field of a form.
pub(super) struct FormField<'a> {
    pub(super) name: &'a str,
    pub(super) label: &'a str,
    /// What to write; may be empty.
    pub(super) hint: &'a str,
    pub(super) problem: Option<&'a str>,
}

/// One of several values.
#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    pub(super) value: &'a str,
    pub(super) label: &'a str,
}

impl FormField<'_> {
    fn id(&self) -> String {
        format!("field-{}", self.name)
    }

    /// Returns the ids of the texts that describe the field.
    fn described_by(&self) -> Option<String> {
        let hint = (!self.hint.is_empty()).then(|| format!("hint-{}", self.name));
        let problem = self.problem.map(|_| format!("problem-{}", self.name));
        let ids: Vec<String> = hint.into_iter().chain(problem).collect();
        (!ids.is_empty()).then(|| ids.join(" "))
    }

    fn render(&self, control: &Markup) -> Markup {
        html! {
            .field {
                label for=(self.id()) { (self.label) }
                (control)
                @if !self.hint.is_empty() { span .hint id={ "hint-" (self.name) } { (self.hint) } }
                @if let Some(problem) = self.problem { span .problem id={ "problem-" (self.name) } role="alert" { (problem) } }
            }
        }
    }
}

/// Returns a required text field.
pub(super) fn text_input(field: &FormField<'_>, value: &str) -> Markup {
    field.render(&html! {
        input type="text" id=(field.id()) name=(field.name) value=(value) autocomplete="off" required
            aria-describedby=[field.described_by()] aria-invalid=[field.problem.map(|_| "true")];
    })
}

/// Returns a field of several lines.
pub(super) fn lines_field(field: &FormField<'_>, value: &str) -> Markup {
    field.render(&html! {
        textarea .short id=(field.id()) name=(field.name) rows="3"
            aria-describedby=[field.described_by()] aria-invalid=[field.problem.map(|_| "true")] { (value) }
    })
}

/// Returns a field with one of several values.
pub(super) fn choice_field(field: &FormField<'_>, choices: &[Choice<'_>], value: &str) -> Markup {
    field.render(&html! {
        select id=(field.id()) name=(field.name)
            aria-describedby=[field.described_by()] aria-invalid=[field.problem.map(|_| "true")] {
            @for choice in choices {
                option value=(choice.value) selected[choice.value == value] { (choice.label) }
            }
        }
    })
}
