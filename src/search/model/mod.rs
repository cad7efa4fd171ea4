//! What words mean: a static model in the form of model2vec. A text's meaning is the mean of its pieces' rows. There is
//! no network and no inference engine, and nothing is fetched.

mod files;
mod pieces;

use pieces::Pieces;
use std::{
    borrow::Cow,
    path::Path,
    sync::{Arc, OnceLock},
};

/// Pieces of one text that count; those after them are not read.
const MOST_PIECES: usize = 512;

/// A model.
pub(super) struct Model {
    pieces: Pieces,
    /// A row of signed bytes for each piece. Their unit is the same everywhere, and a direction has no length.
    rows: Cow<'static, [u8]>,
    dimensions: usize,
}

/// What a text means.
pub(super) struct Direction {
    /// A vector of length 1.
    pub(super) cells: Vec<f32>,
    /// The share of the text's words that the model knows.
    pub(super) known: f32,
}

impl Model {
    /// The model that is part of the program; it is read once.
    ///
    /// # Errors
    /// What is wrong with it, which a test rules out.
    pub(super) fn builtin() -> Result<Arc<Self>, String> {
        static BUILTIN: OnceLock<Result<Arc<Model>, String>> = OnceLock::new();
        BUILTIN.get_or_init(|| files::builtin().map(Arc::new)).clone()
    }

    /// Reads a model from its folder.
    ///
    /// # Errors
    /// What is missing or not understood, by file.
    pub(super) fn read(folder: &Path) -> Result<Arc<Self>, String> {
        files::read(folder).map(Arc::new)
    }

    pub(super) fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// What `text` means; none where no piece of it is known.
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

    /// The numbers of the pieces that count.
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
