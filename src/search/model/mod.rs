//! Static embedding model in the format of model2vec: the embedding of a text is the mean of its pieces' rows. It needs
//! no network and no inference engine.

mod files;
mod pieces;

use pieces::Pieces;
use std::{
    borrow::Cow,
    path::Path,
    sync::{Arc, OnceLock},
};

/// Maximum number of pieces read of one text.
const MOST_PIECES: usize = 512;

/// A static embedding model.
pub(super) struct Model {
    pieces: Pieces,
    /// A row of signed bytes for each piece, all of one scale; embeddings are normalized.
    rows: Cow<'static, [u8]>,
    dimensions: usize,
}

/// Embedding of a text.
pub(super) struct Direction {
    /// A vector of length 1.
    pub(super) cells: Vec<f32>,
    /// Share of the text's words that the model knows.
    pub(super) known: f32,
}

impl Model {
    /// Returns the model that is compiled into the program; it is parsed once.
    ///
    /// # Errors
    /// The model is invalid, which a test rules out.
    pub(super) fn builtin() -> Result<Arc<Self>, String> {
        static BUILTIN: OnceLock<Result<Arc<Model>, String>> = OnceLock::new();
        BUILTIN.get_or_init(|| files::builtin().map(Arc::new)).clone()
    }

    /// Loads a model from its folder.
    ///
    /// # Errors
    /// A file is missing, invalid or not supported.
    pub(super) fn read(folder: &Path) -> Result<Arc<Self>, String> {
        files::read(folder).map(Arc::new)
    }

    pub(super) fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Embeds `text`; `None` if no piece of it is known.
    pub(super) fn direction(&self, text: &str) -> Option<Direction> {
        let mut sum = vec![0i32; self.dimensions];
        let mut left = MOST_PIECES;
        let known = self.pieces.cut(text, &mut |piece| {
            let from = piece as usize * self.dimensions;
            let row = self.rows.get(from..from + self.dimensions).unwrap_or_default();
            for (sum, cell) in sum.iter_mut().zip(row) {
                *sum += i32::from(i8::from_ne_bytes([*cell]));
            }
            left -= 1;
            left > 0
        });
        let length = sum.iter().map(|x| (*x as f32).powi(2)).sum::<f32>().sqrt();
        (length > 0.0).then(|| Direction { cells: sum.iter().map(|x| *x as f32 / length).collect(), known })
    }

    /// Returns the ids of the text's pieces.
    #[cfg(test)]
    pub(super) fn pieces_of(&self, text: &str) -> Vec<u32> {
        let mut found = Vec::new();
        self.pieces.cut(text, &mut |piece| {
            found.push(piece);
            true
        });
        found
    }
}
