//! Loading of a model's files: config.json, tokenizer.json and model.safetensors. Unsupported settings are refused: a
//! tokenizer other than the one of the model's training would produce wrong embeddings.

use super::piece_table::PieceTable;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::Deserialize;
use std::{borrow::Cow, collections::HashMap, fs, io::Read, path::Path};

/// Maximum size of `model.safetensors` in bytes.
const MAX_WEIGHTS_BYTES: u64 = 512 << 20;
/// Maximum size of `tokenizer.json` in bytes.
const MAX_VOCABULARY_BYTES: u64 = 64 << 20;
/// Maximum number of dimensions of a model.
const MAX_DIMENSIONS: usize = 1024;

/// The table of the pieces of `tokenizer.json`, which a test compares.
static PIECES: &[u8] = include_bytes!("minilm-static-128/pieces.bin");
static WEIGHTS: &[u8] = include_bytes!("minilm-static-128/model.safetensors");

/// Returns the model that is compiled into the program.
pub(super) fn load_builtin() -> Result<ModelTables, String> {
    let (rows, dimensions) = parse_embeddings(WEIGHTS)?.into_quantized_rows();
    Ok(ModelTables { pieces: PieceTable::from_block(Cow::Borrowed(PIECES))?, rows, dimensions })
}

/// Loads the model in `folder`.
pub(super) fn load_folder(folder: &Path) -> Result<ModelTables, String> {
    let vocabulary = read_bounded(folder, "tokenizer.json", MAX_VOCABULARY_BYTES)?;
    let weights = read_bounded(folder, "model.safetensors", MAX_WEIGHTS_BYTES)?;
    ModelTables::parse(&vocabulary, &weights)
}

fn read_bounded(folder: &Path, name: &str, max_bytes: u64) -> Result<Vec<u8>, String> {
    let path = folder.join(name);
    let read_error = |why: std::io::Error| format!("{} cannot be read: {why}", path.display());
    let mut bytes = Vec::new();
    fs::File::open(&path).map_err(read_error)?.take(max_bytes + 1).read_to_end(&mut bytes).map_err(read_error)?;
    if bytes.len() as u64 > max_bytes {
        Err(format!("{} is too large (at most {}MiB)", path.display(), max_bytes >> 20))
    } else {
        Ok(bytes)
    }
}

/// The contents of a model's files.
pub(super) struct ModelTables {
    /// The number of each piece.
    pub(super) pieces: PieceTable,
    /// A row of signed bytes for each piece, all of one scale.
    pub(super) rows: Cow<'static, [u8]>,
    /// The length of a row.
    pub(super) dimensions: usize,
}

impl ModelTables {
    fn parse(vocabulary: &[u8], weights: &[u8]) -> Result<Self, String> {
        let vocabulary = parse_vocabulary(vocabulary)?;
        let (rows, dimensions) = parse_embeddings(weights)?.into_quantized_rows();
        let pieces = rows.len() / dimensions;
        match vocabulary.values().max() {
            Some(last) if (*last as usize) < pieces => {
                Ok(Self { pieces: PieceTable::build(&vocabulary)?, rows: Cow::Owned(rows.into_owned()), dimensions })
            }
            _ => {
                Err(format!("model.safetensors has {pieces} rows (it must have one for each piece of tokenizer.json)"))
            }
        }
    }
}

fn parse_vocabulary(file: &[u8]) -> Result<HashMap<String, u32>, String> {
    serde_json::from_slice::<TokenizerFile>(file)
        .map_err(|why| format!("tokenizer.json is not a WordPiece tokenizer of BERT's uncased kind: {why}"))?
        .into_vocabulary()
}

/// The supported part of `tokenizer.json`.
#[derive(Deserialize)]
struct TokenizerFile {
    normalizer: NormalizerSection,
    pre_tokenizer: ComponentType,
    model: VocabularySection,
}

#[derive(Deserialize)]
struct NormalizerSection {
    #[serde(flatten)]
    kind: ComponentType,
    lowercase: bool,
    handle_chinese_chars: bool,
    strip_accents: Option<bool>,
}

#[derive(Deserialize)]
struct ComponentType {
    #[serde(rename = "type")]
    name: String,
}

#[derive(Deserialize)]
struct VocabularySection {
    #[serde(flatten)]
    kind: ComponentType,
    continuing_subword_prefix: String,
    vocab: HashMap<String, u32>,
}

impl TokenizerFile {
    fn into_vocabulary(self) -> Result<HashMap<String, u32>, String> {
        let normalizer = &self.normalizer;
        let settings = [
            ("model.type", &self.model.kind.name, "WordPiece"),
            ("model.continuing_subword_prefix", &self.model.continuing_subword_prefix, "##"),
            ("normalizer.type", &normalizer.kind.name, "BertNormalizer"),
            ("pre_tokenizer.type", &self.pre_tokenizer.name, "BertPreTokenizer"),
        ];
        if let Some((path, actual, expected)) = settings.into_iter().find(|(_, actual, expected)| actual != expected) {
            return Err(format!("tokenizer.json: {path} is '{actual}' (it must be {expected})"));
        }
        if !normalizer.lowercase || !normalizer.handle_chinese_chars || normalizer.strip_accents == Some(false) {
            return Err(
                "tokenizer.json: the normalizer must convert to lower case, strip accents and separate ideographs"
                    .to_owned(),
            );
        }
        Ok(self.model.vocab)
    }
}

/// Embedding table of a model: a row for each piece.
struct EmbeddingTensor<'a> {
    view: TensorView<'a>,
    dimensions: usize,
}

fn parse_embeddings(file: &[u8]) -> Result<EmbeddingTensor<'_>, String> {
    let invalid = |why: &dyn std::fmt::Display| format!("model.safetensors: {why}");
    let tensors = SafeTensors::deserialize(file).map_err(|why| invalid(&why))?;
    if let Some(other) = tensors.names().into_iter().find(|name| *name != "embeddings") {
        return Err(invalid(&format!("tensor '{other}' is not supported (only a tensor called embeddings is)")));
    }
    let view = tensors.tensor("embeddings").map_err(|why| invalid(&why))?;
    if !matches!(view.dtype(), Dtype::I8 | Dtype::F16 | Dtype::F32) {
        return Err(invalid(&format!("embeddings are {:?} (must be I8, F16 or F32)", view.dtype())));
    }
    match *view.shape() {
        [_, dimensions @ 1..=MAX_DIMENSIONS] => Ok(EmbeddingTensor { view, dimensions }),
        _ => Err(invalid(&format!(
            "embeddings have the shape {:?} (must be pieces by 1 to {MAX_DIMENSIONS})",
            view.shape()
        ))),
    }
}

impl<'a> EmbeddingTensor<'a> {
    /// Returns the rows as signed bytes, and the number of dimensions.
    fn into_quantized_rows(self) -> (Cow<'a, [u8]>, usize) {
        let data = self.view.data();
        let rows = match self.view.dtype() {
            Dtype::I8 => return (Cow::Borrowed(data), self.dimensions),
            Dtype::F16 => quantize(data.as_chunks().0.iter().map(|bytes| f16_to_f32(u16::from_le_bytes(*bytes)))),
            _ => quantize(data.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes))),
        };
        (Cow::Owned(rows), self.dimensions)
    }
}

/// Quantizes floats to signed bytes; the largest magnitude becomes 127.
fn quantize(values: impl Iterator<Item = f32> + Clone) -> Vec<u8> {
    let finite = values.map(|x| if x.is_finite() { x } else { 0.0 });
    let max = finite.clone().fold(f32::MIN_POSITIVE, |max, x| x.abs().max(max));
    finite.flat_map(|x| ((x / max * 127.0).round() as i8).to_ne_bytes()).collect()
}

/// Converts a half-precision float (IEEE 754 binary16).
fn f16_to_f32(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f32::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 => f32::INFINITY,
        _ => (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
    }
}

#[cfg(test)]
mod tests {
    use super::{PIECES, parse_vocabulary};
    use crate::search::embedding::piece_table;
    use std::fs;

    const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/search/embedding/minilm-static-128");

    /// `GATEPOST_RENEW_PIECES=1` writes the table.
    #[test]
    fn the_built_in_table_has_the_pieces_of_the_tokenizer() {
        let vocabulary = parse_vocabulary(&fs::read(format!("{FOLDER}/tokenizer.json")).unwrap()).unwrap();
        let block = piece_table::build_block(&vocabulary).unwrap();
        if std::env::var_os("GATEPOST_RENEW_PIECES").is_some() {
            fs::write(format!("{FOLDER}/pieces.bin"), &block).unwrap();
            return;
        }
        assert!(block == PIECES, "pieces.bin is not that of tokenizer.json (GATEPOST_RENEW_PIECES=1 writes it)");
        let table = piece_table::PieceTable::build(&vocabulary).unwrap();
        for (piece, id) in vocabulary {
            let (_, kind, text) = piece_table::split(&piece, id);
            assert_eq!(table.get(kind, text), Some(id), "{piece}");
        }
        assert_eq!(table.get(piece_table::PieceKind::WordStart, "qzxv"), None);
    }

    #[test]
    fn a_damaged_table_is_refused_and_finds_nothing() {
        use piece_table::{PieceKind, PieceTable};
        for block in [&[][..], &[3, 0, 0, 0, 1, 0, 0, 0], &[2, 0, 0, 0, 1, 0, 0, 0, 1]] {
            assert!(PieceTable::from_block(block.into()).is_err(), "{block:?}");
        }
        let outside = PieceTable::from_block((&[1u8, 0, 0, 0, 1, 0, 0, 0, 200, 0, 0, 0][..]).into()).unwrap();
        assert_eq!(outside.get(PieceKind::WordStart, "a"), None);
    }
}
