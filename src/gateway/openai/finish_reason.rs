//! Why an answer ends.

use serde_json::Value;

/// Why an answer ends, as far as clients distinguish it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FinishReason {
    /// The answer is complete.
    #[default]
    Stop,
    /// The answer reached a maximum length.
    Length,
    /// A filter removed the rest of the answer.
    ContentFilter,
}

impl FinishReason {
    /// Returns the `finish_reason` of a chat completion.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ContentFilter => "content_filter",
        }
    }

    /// Returns the reason in the `incomplete_details` of a response; `None` for a complete one.
    pub(super) fn incomplete_reason(self) -> Option<&'static str> {
        match self {
            Self::Stop => None,
            Self::Length => Some("max_output_tokens"),
            Self::ContentFilter => Some("content_filter"),
        }
    }
}

/// Returns the reason that an answer has, as a chat completion or in a member of its own.
pub(super) fn find_finish_reason(answer: &Value) -> Option<FinishReason> {
    let of_choice = answer.get("choices").and_then(|choices| choices.get(0)?.get("finish_reason"));
    Some(match of_choice.or_else(|| answer.get("finish_reason"))?.as_str()? {
        "length" => FinishReason::Length,
        "content_filter" => FinishReason::ContentFilter,
        _ => FinishReason::Stop,
    })
}
