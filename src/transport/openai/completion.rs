//! Completions and their chunks, as far as the gateway reads them. Servers differ in what else they send; it is skipped
//! without being kept in memory.

use crate::fault::{Fault, FaultCode, Result};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};
use serde_json::{Value, json, value::RawValue};
use std::{borrow::Cow, fmt, marker::PhantomData};

/// A chat completion, or a chunk of one.
#[derive(Debug, Deserialize)]
pub(super) struct Completion<'a> {
    #[serde(borrow, default)]
    choices: Option<FirstItem<Choice<'a>>>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// `error` for the errors of some servers, whose members are at the top.
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
}

/// One answer of the model; the gateway asks for one.
#[derive(Debug, Deserialize)]
pub(super) struct Choice<'a> {
    #[serde(borrow, default)]
    message: Option<ChoiceMessage<'a>>,
    /// The part of the message in a chunk.
    #[serde(borrow, default)]
    delta: Option<ChoiceMessage<'a>>,
    #[serde(borrow, default)]
    finish_reason: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
struct ChoiceMessage<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    refusal: Option<&'a RawValue>,
}

/// The tokens that a completion took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct TokenUsage {
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

impl TokenUsage {
    /// Returns the usage as callers read it.
    pub(super) fn to_json(self) -> Value {
        json!({"input_tokens": self.prompt_tokens, "output_tokens": self.completion_tokens})
    }
}

impl<'a> Completion<'a> {
    /// Parses the body of a response, or the data of an event.
    pub(super) fn parse(body: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    /// Whether the server reports an error instead.
    pub(super) fn is_error(&self) -> bool {
        self.error.is_some_and(|error| error.get() != "null")
            || self.object.is_some_and(|object| object.get() == "\"error\"")
    }

    /// Returns the first choice.
    pub(super) fn choice(&self) -> Option<&Choice<'a>> {
        self.choices.as_ref()?.0.as_ref()
    }

    /// Returns the usage, if the server reports it.
    pub(super) fn usage(&self) -> Option<TokenUsage> {
        serde_json::from_str(self.usage?.get()).ok()
    }
}

impl<'a> Choice<'a> {
    fn message(&self) -> Option<&ChoiceMessage<'a>> {
        self.message.as_ref().or(self.delta.as_ref())
    }

    /// Returns the text: a string, or parts of text.
    pub(super) fn text(&self) -> Option<String> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Content {
            Text(String),
            Parts(Vec<Part>),
        }
        #[derive(Deserialize)]
        struct Part {
            #[serde(default)]
            text: Option<String>,
        }
        let content = self.message()?.content?;
        match serde_json::from_str(content.get()).ok()? {
            Content::Text(text) => Some(text),
            Content::Parts(parts) => Some(parts.into_iter().filter_map(|part| part.text).collect()),
        }
    }

    /// Returns the words with which the model refuses to answer.
    pub(super) fn refusal(&self) -> Option<String> {
        let refusal: String = serde_json::from_str(self.message()?.refusal?.get()).ok()?;
        Some(refusal).filter(|refusal| !refusal.is_empty())
    }

    /// Returns why the answer ends.
    pub(super) fn finish_reason(&self) -> Option<FinishReason> {
        self.finish_reason.as_deref().filter(|reason| !reason.is_empty()).map(FinishReason::from)
    }
}

/// Why an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinishReason {
    /// The model has said everything; `stop` and the names that servers have for it.
    Complete,
    /// The limit of tokens cut the answer off.
    Length,
    /// A filter of the server withheld the answer, or a part of it.
    ContentFilter,
    /// The model calls a tool, and the gateway offered none.
    ToolCall,
}

impl From<&str> for FinishReason {
    fn from(reason: &str) -> Self {
        match reason {
            "length" | "max_tokens" => Self::Length,
            "content_filter" => Self::ContentFilter,
            "tool_calls" | "function_call" => Self::ToolCall,
            _ => Self::Complete,
        }
    }
}

impl FinishReason {
    /// Checks that the answer is complete.
    ///
    /// # Errors
    /// Why it is not.
    pub(super) fn check(self) -> Result<()> {
        let setting = "agents.rules[].endpoint.parameters";
        Err(match self {
            Self::Complete => return Ok(()),
            Self::Length => {
                let message = "The agent's answer is incomplete: it reached the model's limit of tokens";
                Fault::new(FaultCode::AgentError, message).with_setting(setting)
            }
            Self::ContentFilter => {
                let message = "The agent's content filter withheld the answer to this input";
                Fault::new(FaultCode::InvalidInput, message).with_status(422)
            }
            Self::ToolCall => {
                let message = "The agent's model called a tool instead of answering";
                Fault::new(FaultCode::AgentError, message).with_setting(setting)
            }
        })
    }
}

/// The first item of a list; the others are skipped.
#[derive(Debug)]
struct FirstItem<T>(Option<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for FirstItem<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct FirstItemVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for FirstItemVisitor<T> {
            type Value = FirstItem<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> std::result::Result<FirstItem<T>, A::Error> {
                let first = items.next_element()?;
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(FirstItem(first))
            }
        }

        deserializer.deserialize_seq(FirstItemVisitor(PhantomData))
    }
}
