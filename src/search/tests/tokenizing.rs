//! Tokenizing text into terms.

use super::*;
use crate::search::term_tokenizer::{TermTokenizer, TextRole};

fn tokenize(role: TextRole, text: &str) -> Vec<String> {
    let mut terms = Vec::new();
    TermTokenizer::new(role).tokenize(text, &mut |term| terms.push(term.to_owned()));
    terms
}

#[test]
fn text_is_tokenized_for_agents_and_for_queries() {
    let cases: [(&str, &[&str], &[&str]); 17] = [
        ("Translates the texts", &["translat", "text"], &["translat", "text"]),
        ("translateText", &["translatetext"], &["translatetext", "translat", "text"]),
        ("GitHub API", &["github", "api"], &["github", "git", "hub", "api"]),
        ("OpenAPI", &["openapi"], &["openapi", "open", "api"]),
        ("text-to-speech", &["text", "speech"], &["text", "speech"]),
        ("gpt4 h.264", &["gpt4", "h", "264"], &["gpt4", "h", "264"]),
        ("Ünïcödé", &["unicod"], &["unicod"]),
        ("ﬁle ＡＢＣ", &["file", "abc"], &["file", "abc"]),
        ("Straße", &["straße"], &["straße"]),
        ("天气预报", &["天气", "气预", "预报"], &["天", "气", "预", "报", "天气", "气预", "预报"]),
        ("天", &["天"], &["天"]),
        ("PDF文件v2", &["pdf", "文件", "v2"], &["pdf", "文", "件", "文件", "v2"]),
        ("한국어", &["한국", "국어"], &["한", "국", "어", "한국", "국어"]),
        ("がか", &["がか"], &["が", "か", "がか"]),
        ("привет МИР", &["привет", "мир"], &["привет", "мир"]),
        ("who does it, please?", &[], &[]),
        ("🙂 — \u{0} \u{301}", &[], &[]),
    ];
    for (text, query, agent) in cases {
        assert_eq!(tokenize(TextRole::Query, text), query, "{text}");
        assert_eq!(tokenize(TextRole::Agent, text), agent, "{text}");
    }
}

#[test]
fn a_word_of_any_length_becomes_a_short_term() {
    for word in ["x".repeat(100_000), "é".repeat(100_000), "ß".repeat(5_000)] {
        let terms = tokenize(TextRole::Agent, &word);
        assert!(terms.len() == 1 && terms[0].chars().count() <= 40, "{terms:.50?}");
    }
}

#[test]
fn the_stem_cache_stays_correct_when_it_overflows() {
    let mut tokenizer = TermTokenizer::new(TextRole::Agent);
    for at in 0..60_000 {
        tokenizer.tokenize(&format!("word{at}"), &mut |term| assert_eq!(term, format!("word{at}")));
    }
    tokenizer.tokenize("word0 translations", &mut |term| assert!(["word0", "translat"].contains(&term)));
}

proptest::proptest! {
    #[test]
    fn any_text_is_tokenized(text in "\\PC{0,60}", more in proptest::collection::vec(proptest::char::any(), 0..60)) {
        let text: String = text.chars().chain(more).collect();
        for role in [TextRole::Query, TextRole::Agent] {
            for term in tokenize(role, &text) {
                proptest::prop_assert!(!term.is_empty() && term.chars().count() <= 120);
            }
        }
        let index = index(Ranking::Auto, &[document("a", json!({"description": text.clone()}))]);
        let results = index.search(&SearchQuery { top: 5, ..super::text(&text) }, &all);
        proptest::prop_assert!(results.hits.len() <= 1);
    }
}

#[test]
fn misspelled_words_match_and_other_words_do_not() {
    let words = ["weather", "restaurant", "vulnerability", "code", "2024", "translation", "train"];
    let documents: Vec<Value> = words.iter().map(|word| document(&format!("x-{word}"), json!({}))).collect();
    let index = index(Ranking::Text, &documents);
    let cases = [
        ("wether", "x-weather"),
        ("weahter", "x-weather"),
        ("weatherr", "x-weather"),
        ("resturant", "x-restaurant"),
        ("vunerability", "x-vulnerability"),
        ("tranlsation", "x-translation"),
        ("rest", "x-restaurant"),
        ("leather", ""),
        ("cide", ""),
        ("2025", ""),
        ("trail", "x-train"),
        ("br", ""),
        ("restless", ""),
    ];
    for (query_text, expected) in cases {
        let results = index.search(&text(query_text), &all);
        assert_eq!(ids(&results).first().copied().unwrap_or_default(), expected, "{query_text}");
        assert!(
            results.hits.iter().all(|hit| hit.score.is_some_and(|score| score < 0.8)),
            "a fuzzy match scores lower"
        );
    }
}
