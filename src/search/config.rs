//! What the operator decides about finding: which model knows what words mean, and what ranks.

use crate::unit::FilePath;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// How agents are found.
///
/// An agent whose text has forty different words costs about 370 bytes here, 132 of them for the built-in model; while a
/// change is taken in, the old index and the new one stand side by side. No more than 16 KiB of an agent's text are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "Search")]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The model that knows what words mean: `builtin` (default; English, 128 dimensions), `off`, or the folder of
    /// another static model in the form of model2vec (config.json, tokenizer.json with WordPiece, model.safetensors
    /// of at most 512MiB). It costs its own size in memory, and its dimensions plus four bytes for each agent.
    #[schemars(with = "String")]
    pub model: Source,
    /// What the order of agents found by words depends on; `auto` unless written.
    pub ranking: Ranking,
}

/// Where the model comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Source {
    /// It is part of the program.
    #[default]
    Builtin,
    /// There is none.
    Off,
    /// A folder.
    Folder(FilePath),
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("say which model is used (builtin, off or the path of a folder)".to_owned()),
            "builtin" => Ok(Self::Builtin),
            "off" => Ok(Self::Off),
            path => path.parse().map(Self::Folder),
        }
    }
}

impl TryFrom<String> for Source {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Source> for String {
    fn from(source: Source) -> Self {
        match source {
            Source::Builtin => "builtin".to_owned(),
            Source::Off => "off".to_owned(),
            Source::Folder(path) => path.display().to_string(),
        }
    }
}

/// What ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ranking {
    /// What measures best: words and meaning together; words alone without a model.
    #[default]
    Auto,
    /// Words that the query and the agent share (BM25).
    Text,
    /// What the words mean, as the model knows it.
    Semantic,
    /// Both.
    Hybrid,
}
