//! The setting `endpoint` of a rule: what servers speak that do not take the input of a call as it is.

use serde_json::{Map, Value};

/// What the agents' servers speak, where they do not take the input of a call as it is.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndpointConfig {
    /// `openai` for servers of OpenAI's chat completions, such as vLLM, Ollama, LiteLLM and OpenAI itself. The agents'
    /// endpoint is the server's base URL then, such as `https://llm.example.com/v1`. Required.
    pub kind: EndpointKind,
    /// The model that the server is asked for; `{id}` stands for the agent's id. Required.
    #[schemars(length(min = 1))]
    pub model: String,
    /// The system message that precedes every conversation. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The property of the input that is the message of the user, or the list of messages. Default: an input whose only
    /// member is `messages` is the conversation; one whose only member is the only text that the input schema declares is
    /// the message; else the message is the whole input as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// What the answer of the model is. Default: `json` for operations that declare an output schema, else `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<AnswerForm>,
    /// Further members of each request, such as `temperature`, `max_completion_tokens` or `seed`. Default: none.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
}

/// What a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndpointKind {
    /// OpenAI's chat completions.
    Openai,
}

/// What the answer of a model is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AnswerForm {
    /// A text, which callers read as `output`.
    Text,
    /// JSON that is the result itself. The server is asked for JSON of the operation's output schema, or for any JSON
    /// object where there is none.
    Json,
    /// The same, where the server is asked for any JSON object, because it knows no schemas.
    JsonObject,
}

/// Members of a request that the gateway writes, or whose answers it cannot hand on.
const RESERVED_PARAMETERS: &[&str] = &[
    "model",
    "messages",
    "stream",
    "stream_options",
    "n",
    "response_format",
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "modalities",
    "audio",
];

impl EndpointConfig {
    /// Returns the problems of the setting.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.model.trim().is_empty() {
            problems.push("model: is empty (name a model of the server)".to_owned());
        }
        if self.input.as_ref().is_some_and(String::is_empty) {
            problems.push("input: is empty (name a property of the input)".to_owned());
        }
        let reserved = RESERVED_PARAMETERS.iter().filter(|name| self.parameters.contains_key(**name));
        problems.extend(reserved.map(|name| format!("parameters.{name}: is not allowed (the gateway decides it)")));
        problems
    }

    /// Returns the model of an agent.
    pub(super) fn model_of(&self, agent: &str) -> String {
        self.model.replace("{id}", agent)
    }
}
