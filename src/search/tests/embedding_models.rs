//! Embedding models: the built-in one, models of a folder, and invalid folders.

use super::*;
use crate::search::embedding::EmbeddingModel;
use safetensors::{Dtype, serialize, tensor::TensorView};
use std::{fs, path::Path};

/// Texts and the ids of their pieces.
const REFERENCE: &[(&str, &[u32])] = &[
    ("Weather forecast", &[4633, 19939]),
    (
        "Embeddings, tokenization & résumé-screening!",
        &[7861, 8270, 4667, 2015, 1010, 19204, 3989, 1004, 13746, 1011, 11326, 999],
    ),
    ("unaffable 3.14 don't", &[14477, 20961, 3468, 1017, 1012, 2403, 2123, 1005, 1056]),
    ("翻译 documents", &[5491]),
    ("Kündigungsschutz", &[28919, 4305, 12734, 5620, 11624, 20267]),
    ("a\u{a0}b\tc\u{200b}d", &[1037, 1038, 3729]),
    ("naïve ＡＢＣ", &[15743]),
    ("qzxv🙂", &[]),
    ("“quoted” — dash…", &[1523, 9339, 1524, 1517, 11454, 1529]),
    ("e-mail@example.com", &[1041, 1011, 5653, 1030, 2742, 1012, 4012]),
    ("x\u{0}y", &[1060, 2100]),
    ("ΑΒΓ Привет", &[1155, 29720, 29721, 1194, 16856, 10325, 25529, 15290, 22919]),
];

fn similarity(model: &EmbeddingModel, one: &str, other: &str) -> f32 {
    let (one, other) = (model.embed(one).unwrap().components, model.embed(other).unwrap().components);
    one.iter().zip(&other).map(|(x, y)| x * y).sum()
}

#[test]
fn the_built_in_model_ranks_synonyms_above_unrelated_words() {
    let model = EmbeddingModel::builtin().unwrap();
    assert_eq!(model.dimensions(), 128);
    let embedding = model.embed("Weather forecast").unwrap();
    let length: f32 = embedding.components.iter().map(|x| x * x).sum();
    assert!((length - 1.0).abs() < 1e-4 && embedding.known_share == 1.0);
    assert!(similarity(&model, "car", "automobile") > similarity(&model, "car", "banana") + 0.3);
    assert!(similarity(&model, "Überraschung", "uberraschung") > 0.999);
}

#[test]
fn texts_are_tokenized_as_by_the_reference_tokenizer() {
    // The ids come from the reference tokenizer of the same file, without its special pieces.
    for (text, expected) in REFERENCE {
        assert_eq!(EmbeddingModel::builtin().unwrap().piece_ids(text), *expected, "{text:?}");
    }
}

#[test]
fn texts_without_words_have_no_embedding_and_unknown_words_lower_the_known_share() {
    let model = EmbeddingModel::builtin().unwrap();
    for text in ["", "   ", "\u{0}", "\u{301}", "🙂🙂", &"x".repeat(101)] {
        assert!(model.embed(text).is_none(), "{text:.10}");
    }
    for (text, share) in
        [("weather", 1.0), ("weather qzxv", 0.5), ("qzxv", 0.0), ("weather 天", 0.5), ("I, weather!", 1.0)]
    {
        assert_eq!(model.embed(text).unwrap().known_share, share, "{text}");
    }
}

/// A folder with a model with a row of two dimensions for each of `words`.
fn folder(words: &[&str], weights: &[u8]) -> tempfile::TempDir {
    let vocabulary: serde_json::Map<_, _> =
        words.iter().zip(0..).map(|(word, id)| ((*word).to_owned(), json!(id))).collect();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tokenizer.json"), tokenizer(&vocabulary.into()).to_string()).unwrap();
    fs::write(folder.path().join("model.safetensors"), weights).unwrap();
    folder
}

fn tokenizer(vocabulary: &Value) -> Value {
    json!({
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "continuing_subword_prefix": "##", "vocab": vocabulary},
    })
}

fn table(name: &str, kind: Dtype, shape: &[usize], bytes: &[u8]) -> Vec<u8> {
    serialize([(name, TensorView::new(kind, shape.to_vec(), bytes).unwrap())], None).unwrap()
}

fn open_index(folder: &Path) -> Result<SearchIndex, Vec<String>> {
    SearchIndex::new(&SearchConfig { model: ModelSource::Folder(folder.into()), ranking: Ranking::Semantic })
}

#[test]
fn a_model_from_a_folder_ranks_with_every_supported_number_format() {
    let words = ["rain", "umbrella", "bread"];
    let cells = [1.0f32, 0.0, 0.9, 0.1, 0.0, 1.0];
    let halves: Vec<u8> =
        [0x3c00u16, 0, 0x3b33, 0x2e66, 0, 0x3c00].iter().flat_map(|half| half.to_le_bytes()).collect();
    let floats: Vec<u8> = cells.iter().flat_map(|cell| cell.to_le_bytes()).collect();
    for (kind, bytes) in [(Dtype::I8, vec![127, 0, 114, 13, 0, 127]), (Dtype::F16, halves), (Dtype::F32, floats)] {
        let folder = folder(&words, &table("embeddings", kind, &[3, 2], &bytes));
        let index = open_index(folder.path()).unwrap();
        index.update(agents(&[document("a", json!({"name": "Bread"})), document("b", json!({"name": "Rain"}))]));
        let results = index.search(&text("umbrella"), &all);
        assert_eq!(ids(&results), ["b"], "{kind:?}");
        assert!((results.hits[0].score.unwrap() - 0.99).abs() < 0.02, "{:?}", results.hits[0].score);
    }
}

#[test]
fn an_unsupported_model_folder_is_refused_with_the_reason() {
    let words = ["rain", "bread"];
    let valid_weights = || table("embeddings", Dtype::I8, &[2, 2], &[1, 2, 3, 4]);
    let weights: Vec<(Vec<u8>, &str)> = vec![
        (Vec::new(), "model.safetensors"),
        (vec![0; 100], "model.safetensors"),
        (vec![0xff; 100], "model.safetensors"),
        (valid_weights()[..40].to_vec(), "model.safetensors"),
        (table("vectors", Dtype::I8, &[2, 2], &[0; 4]), "only a tensor called embeddings"),
        (table("embeddings", Dtype::I64, &[2, 1], &[0; 16]), "I8, F16 or F32"),
        (table("embeddings", Dtype::I8, &[4], &[0; 4]), "shape"),
        (table("embeddings", Dtype::I8, &[2, 0], &[]), "shape"),
        (table("embeddings", Dtype::I8, &[2, 1025], &[0; 2050]), "1 to 1024"),
        (table("embeddings", Dtype::I8, &[1, 4], &[0; 4]), "one for each piece"),
        (table("embeddings", Dtype::I8, &[0, 4], &[]), "one for each piece"),
    ];
    for (weights, expected) in weights {
        let folder = folder(&words, &weights);
        let problems = open_index(folder.path()).unwrap_err();
        assert!(
            problems.len() == 1 && problems[0].starts_with("model: ") && problems[0].contains(expected),
            "{problems:?}"
        );
    }
    let broken = [
        ("/model/type", json!("BPE"), "WordPiece"),
        ("/model/vocab", json!({}), "one for each piece"),
        ("/model/vocab", json!({"a": -1}), "WordPiece"),
        ("/model/continuing_subword_prefix", json!("@@"), "##"),
        ("/normalizer/type", json!("NFC"), "BertNormalizer"),
        ("/normalizer/lowercase", json!(false), "lower case"),
        ("/pre_tokenizer/type", json!("Whitespace"), "BertPreTokenizer"),
        ("/pre_tokenizer", json!(null), "WordPiece"),
    ];
    for (pointer, value, expected) in broken {
        let folder = folder(&words, &valid_weights());
        let mut tokenizer = tokenizer(&json!({"rain": 0, "bread": 1}));
        *tokenizer.pointer_mut(pointer).unwrap() = value;
        fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
        let problems = open_index(folder.path()).unwrap_err();
        assert!(problems[0].contains("tokenizer.json") && problems[0].contains(expected), "{pointer}: {problems:?}");
    }
    for missing in ["tokenizer.json", "model.safetensors"] {
        let folder = folder(&words, &valid_weights());
        fs::remove_file(folder.path().join(missing)).unwrap();
        let problems = open_index(folder.path()).unwrap_err();
        assert!(problems[0].contains(missing) && problems[0].contains("cannot be read"), "{problems:?}");
    }
}

#[test]
fn a_semantic_ranking_without_a_model_is_refused() {
    for (ranking, is_valid) in
        [(Ranking::Auto, true), (Ranking::Text, true), (Ranking::Semantic, false), (Ranking::Hybrid, false)]
    {
        let result = SearchIndex::new(&SearchConfig { model: ModelSource::Off, ranking });
        assert_eq!(result.is_ok(), is_valid, "{ranking:?}");
        assert!(result.err().is_none_or(|problems| problems[0].starts_with("ranking: needs a model")));
    }
}

#[test]
fn configuration_is_parsed_and_serialized() {
    let parse = |value: Value| serde_json::from_value::<SearchConfig>(value);
    assert_eq!(parse(json!({})).unwrap(), SearchConfig { model: ModelSource::Builtin, ranking: Ranking::Auto });
    assert_eq!(parse(json!({"model": "off", "ranking": "text"})).unwrap().model, ModelSource::Off);
    assert_eq!(parse(json!({"model": "/models/x"})).unwrap().model, ModelSource::Folder("/models/x".into()));
    for broken in [json!({"model": ""}), json!({"model": null}), json!({"ranking": "best"}), json!({"top": 5})] {
        assert!(parse(broken.clone()).is_err(), "{broken}");
    }
    let serialized = serde_json::to_value(SearchConfig::default()).unwrap();
    assert_eq!(serialized, json!({"model": "builtin", "ranking": "auto"}));
}
