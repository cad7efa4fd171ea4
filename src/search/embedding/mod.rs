//! Static embedding model in the format of model2vec: the embedding of a text is the mean of its pieces' rows. It needs
//! no network and no inference engine.

mod model_files;
mod piece_table;
mod wordpiece;

use model_files::ModelTables;
use std::{
    borrow::Cow,
    path::Path,
    sync::{Arc, OnceLock},
};
use wordpiece::WordPieceTokenizer;

/// Maximum number of pieces read of one text.
const MAX_PIECES: usize = 512;

/// A static embedding model.
pub(super) struct EmbeddingModel {
    tokenizer: WordPieceTokenizer,
    /// A row of signed bytes for each piece, all of one scale; embeddings are normalized.
    rows: Cow<'static, [u8]>,
    dimensions: usize,
}

/// Embedding of a text.
pub(super) struct TextEmbedding {
    /// A vector of length 1.
    pub(super) components: Vec<f32>,
    /// Share of the text's words that the model knows.
    pub(super) known_share: f32,
}

impl EmbeddingModel {
    /// Returns the model that is compiled into the program; it is parsed once.
    ///
    /// # Errors
    /// The model is invalid, which a test rules out.
    pub(super) fn builtin() -> Result<Arc<Self>, String> {
        static BUILTIN: OnceLock<Result<Arc<EmbeddingModel>, String>> = OnceLock::new();
        BUILTIN.get_or_init(|| model_files::load_builtin().map(Self::from_tables).map(Arc::new)).clone()
    }

    /// Loads a model from its folder.
    ///
    /// # Errors
    /// A file is missing, invalid or not supported.
    pub(super) fn load(folder: &Path) -> Result<Arc<Self>, String> {
        model_files::load_folder(folder).map(Self::from_tables).map(Arc::new)
    }

    fn from_tables(tables: ModelTables) -> Self {
        let ModelTables { pieces, rows, dimensions } = tables;
        Self { tokenizer: WordPieceTokenizer::new(pieces), rows, dimensions }
    }

    pub(super) fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Embeds `text`; `None` if no piece of it is known.
    pub(super) fn embed(&self, text: &str) -> Option<TextEmbedding> {
        let mut sum = vec![0i32; self.dimensions];
        let mut remaining = MAX_PIECES;
        let known_share = self.tokenizer.tokenize(text, &mut |piece| {
            let start = piece as usize * self.dimensions;
            let row = self.rows.get(start..start + self.dimensions).unwrap_or_default();
            for (sum, component) in sum.iter_mut().zip(row) {
                *sum += i32::from(i8::from_ne_bytes([*component]));
            }
            remaining -= 1;
            remaining > 0
        });
        let length = sum.iter().map(|x| (*x as f32).powi(2)).sum::<f32>().sqrt();
        (length > 0.0)
            .then(|| TextEmbedding { components: sum.iter().map(|x| *x as f32 / length).collect(), known_share })
    }

    /// Returns the ids of the text's pieces.
    #[cfg(test)]
    pub(super) fn piece_ids(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        self.tokenizer.tokenize(text, &mut |piece| {
            ids.push(piece);
            true
        });
        ids
    }
}
