//! Configuration of the search: the embedding model and the ranking.

use crate::values::ConfigPath;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Search over agents.
///
/// An agent whose text has forty different words costs about 370 bytes here, 132 of them for the built-in model. During
/// an update, the old index and the new one are both in memory. Callers that see the same agents share one bit for each
/// agent; at most 256 such sets are kept. At most 16 KiB of an agent's text are indexed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Search")]
#[serde(deny_unknown_fields, default)]
pub struct SearchConfig {
    /// Embedding model for semantic ranking: `builtin` (English, 128 dimensions), `off`, or the folder of another
    /// static model in the format of model2vec (config.json, tokenizer.json with WordPiece, model.safetensors of at
    /// most 512MiB). It costs its own size in memory, and its dimensions plus four bytes for each agent.
    /// Default: `builtin`.
    #[schemars(with = "String")]
    pub model: ModelSource,
    /// Ranking of the agents that match a query's text. Default: `auto`.
    pub ranking: Ranking,
}

/// Source of the embedding model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum ModelSource {
    /// Compiled into the program.
    #[default]
    Builtin,
    /// No model.
    Off,
    /// The files of a folder.
    Folder(ConfigPath),
}

impl FromStr for ModelSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("must be builtin, off or the path of a folder".to_owned()),
            "builtin" => Ok(Self::Builtin),
            "off" => Ok(Self::Off),
            path => path.parse().map(Self::Folder),
        }
    }
}

impl TryFrom<String> for ModelSource {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ModelSource> for String {
    fn from(source: ModelSource) -> Self {
        match source {
            ModelSource::Builtin => "builtin".to_owned(),
            ModelSource::Off => "off".to_owned(),
            ModelSource::Folder(path) => path.display().to_string(),
        }
    }
}

/// Ranking of search results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ranking {
    /// The best by measurement: `hybrid` with a model, `text` without one.
    #[default]
    Auto,
    /// Terms that the query and the agent share (BM25).
    Text,
    /// Similarity of meaning by the embedding model.
    Semantic,
    /// Both `text` and `semantic`.
    Hybrid,
}
