//! The setting `openai` of a rule: how a conversation becomes the input of an agent, and its answer a message.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How agents are called by clients of OpenAI's API, where their schemas do not say it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OpenAiConfig {
    /// The property of the input that has the text of the conversation. Default: by the input schema: its property
    /// `messages` if it is an array, else its only text property, else the whole input is `{"messages": […]}`.
    pub input: Option<String>,
    /// JSON Pointer to the text of the answer. Default: a text, or the first of the properties `output`, `text`, `content`,
    /// `message`, `answer`, `result`, `response` that has one, else the answer as JSON.
    pub output: Option<String>,
    /// The operation that is called. Default: the only one, or the agent's default.
    pub operation: Option<String>,
}

impl OpenAiConfig {
    /// Returns the problem of the setting.
    pub fn problem(&self) -> Option<String> {
        let pointer = self.output.as_ref().filter(|pointer| !pointer.starts_with('/'))?;
        Some(format!("output: '{pointer}' is not a JSON Pointer (write /answer/text)"))
    }
}
