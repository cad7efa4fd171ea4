//! Ranking: the best match comes first, no query is an error, and invisible agents are never returned.

use super::*;

fn sample_index(ranking: Ranking) -> SearchIndex {
    let documents = [
        document("translator", json!({"name": "Translator", "description": "Turns Chinese text into English text."})),
        document("weather", json!({"description": "Forecasts rain and wind; no translator.", "tags": ["climate"]})),
        document(
            "invoices",
            json!({"operations": [{"name": "bookInvoice", "description": "Records a bill in the ledger."}]}),
        ),
        document("mailer", json!({"name": "Post", "capabilities": ["email-delivery"], "status": "deprecated"})),
        document("zh", json!({"name": "中文翻译助手", "description": "把文件翻译成中文。"})),
        document("cafe", json!({"name": "Café Zürich", "description": "Serves crème brûlée"})),
    ];
    index(ranking, &documents)
}

const RANKINGS: [Ranking; 4] = [Ranking::Auto, Ranking::Text, Ranking::Semantic, Ranking::Hybrid];

#[test]
fn r23_r139_words_are_found_in_every_field_of_an_agent() {
    let index = sample_index(Ranking::Text);
    let cases: [(&str, &[&str]); 17] = [
        ("translator", &["translator", "weather"]), // a name weighs more than prose
        ("TRANSLATORS!", &["translator", "weather"]),
        ("climate", &["weather"]),
        ("email delivery", &["mailer"]),
        ("email-delivery", &["mailer"]),
        ("book", &["invoices"]),
        ("bookInvoice", &["invoices"]),
        ("recording of bills", &["invoices"]),
        ("mailer", &["mailer"]), // its id
        ("翻译", &["zh"]),
        ("翻", &["zh"]),
        ("文件翻译 pdf", &["zh"]),
        ("cafe zurich", &["cafe"]),
        ("CRÈME BRÛLÉE", &["cafe"]),
        ("tranlsator", &["translator", "weather"]), // misspelled
        ("forcasts", &["weather"]),
        ("transl", &["translator", "weather"]), // incomplete
    ];
    for (query_text, expected) in cases {
        assert_eq!(ids(&index.search(&text(query_text), &all)), expected, "{query_text}");
    }
}

#[test]
fn r23_semantic_ranking_finds_agents_without_shared_words() {
    for ranking in [Ranking::Auto, Ranking::Semantic, Ranking::Hybrid] {
        let index = sample_index(ranking);
        for (query_text, expected) in
            [("umbrella for a storm tomorrow", "weather"), ("accounting of payments", "invoices")]
        {
            assert_eq!(
                ids(&index.search(&text(query_text), &all)).first(),
                Some(&expected),
                "{ranking:?} {query_text}"
            );
        }
    }
    assert_eq!(ids(&sample_index(Ranking::Text).search(&text("umbrella for a storm tomorrow"), &all)), [""; 0]);
}

#[test]
fn r24_without_a_model_queries_are_ranked_by_words() {
    let index = SearchIndex::new(&SearchConfig { model: ModelSource::Off, ranking: Ranking::Auto }).unwrap();
    index.update(agents(&[document("a", json!({"tags": ["rain"]})), document("b", json!({}))]));
    assert_eq!(ids(&index.search(&text("will it rain"), &all)), ["a"]);
    let index = SearchIndex::default();
    index.update(agents(&[document("a", json!({"tags": ["rain"]}))]));
    assert_eq!(ids(&index.search(&text("rain"), &all)), ["a"]);
}

#[test]
fn r24_a_text_without_words_applies_the_filters_only() {
    for ranking in RANKINGS {
        let index = sample_index(ranking);
        for query_text in ["", " ", "?!", "\0\u{7}", "\u{301}", "🙂", "-"] {
            let results = index.search(&text(query_text), &all);
            assert_eq!(ids(&results), ["cafe", "invoices", "mailer", "translator", "weather", "zh"], "{query_text:?}");
            assert!(results.hits.iter().all(|hit| hit.score.is_none()));
        }
    }
}

#[test]
fn r23_unknown_words_find_nothing_without_an_error() {
    for ranking in RANKINGS {
        for query_text in ["qqqqxkcdzzzv", "ჯგუფი", "9999999999"] {
            assert_eq!(sample_index(ranking).search(&text(query_text), &all).hits.len(), 0, "{ranking:?} {query_text}");
        }
    }
    // Words that the model does not know are matched as terms.
    assert_eq!(ids(&sample_index(Ranking::Semantic).search(&text("翻译"), &all)).first(), Some(&"zh"));
}

#[test]
fn hostile_queries_are_truncated_and_answered() {
    let long = "translator ".repeat(100_000);
    let many: String = (0..10_000).map(|at| format!("term{at} ")).collect();
    let word = "translator".repeat(100_000);
    let wide = "翻".repeat(100_000);
    let marks = format!("e{}", "\u{301}".repeat(100_000));
    let expanding = "ﷺ".repeat(10_000);
    let hostile = [
        long.as_str(),
        &many,
        &word,
        &wide,
        &marks,
        &expanding,
        "name:translator AND (",
        "\"translator",
        "translator*~2^9",
        "[a TO z]",
        "+-&|!(){}[]^\"~*?:\\/",
        "(?i)(a+)+$",
        "' OR 1=1 --",
        "\u{202e}rotalsnart",
        "a\u{0}b",
        "\u{1}ctranslation",
    ];
    for ranking in RANKINGS {
        let index = sample_index(ranking);
        for query_text in hostile {
            let results = index.search(&text(query_text), &all);
            assert!(results.hits.len() <= 6, "{query_text:.30}");
        }
        assert_eq!(ids(&index.search(&text(&long), &all)).first(), Some(&"translator"), "{ranking:?}");
        assert_eq!(
            ids(&index.search(&text("+\"translator\" AND ("), &all)).first(),
            Some(&"translator"),
            "{ranking:?}"
        );
    }
}

#[test]
fn r23_scores_are_between_0_and_1_and_fall_with_the_rank() {
    for ranking in RANKINGS {
        let index = sample_index(ranking);
        for query_text in
            ["translator", "Translator translator Chinese", "rain and English", "book a bill", "翻译", "tranlsator"]
        {
            let results = index.search(&text(query_text), &all);
            let scores: Vec<f32> = results.hits.iter().map(|hit| hit.score.unwrap()).collect();
            assert!(!scores.is_empty() && scores.is_sorted_by(|one, next| one >= next), "{query_text} {scores:?}");
            assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)), "{query_text} {scores:?}");
        }
    }
}

#[test]
fn r23_equal_scores_are_in_the_order_of_ids() {
    for ranking in RANKINGS {
        let rain_agent = |id: &&str| document(id, json!({"name": "Rain Radar"}));
        let index = index(ranking, &["c", "a", "e", "b", "d"].iter().map(rain_agent).collect::<Vec<_>>());
        assert_eq!(ids(&index.search(&text("rain radar"), &all)), ["a", "b", "c", "d", "e"]);
        assert_eq!(
            ids(&index.search(&SearchQuery { top: 9, ..SearchQuery::default() }, &all)),
            ["a", "b", "c", "d", "e"]
        );
    }
}

#[test]
fn r22_r139_pages_are_consecutive_and_report_whether_there_are_more() {
    let documents: Vec<Value> =
        (0..25).map(|at| document(&format!("rain-{at:02}"), json!({"tags": ["rain"]}))).collect();
    for (ranking, query_text) in
        [(Ranking::Text, ""), (Ranking::Text, "rain"), (Ranking::Semantic, "rain"), (Ranking::Auto, "rain")]
    {
        let index = index(ranking, &documents);
        let all_results = index.search(&text(query_text), &all);
        assert!(all_results.hits.len() == 25 && !all_results.has_more);
        let mut paged = Vec::new();
        for page in 0..3 {
            let results = index.search(&SearchQuery { skip: page * 10, top: 10, ..text(query_text) }, &all);
            assert_eq!(results.has_more, page < 2);
            paged.extend(ids(&results).into_iter().map(str::to_owned));
        }
        assert_eq!(paged, ids(&all_results), "{query_text}");
        for (skip, top, count, has_more) in [
            (0, 25, 25, false),
            (0, 24, 24, true),
            (25, 10, 0, false),
            (usize::MAX, 10, 0, false),
            (0, 0, 0, true),
            (0, usize::MAX, 25, false),
            (24, usize::MAX, 1, false),
        ] {
            let results = index.search(&SearchQuery { skip, top, ..text(query_text) }, &all);
            assert_eq!((results.hits.len(), results.has_more), (count, has_more), "{query_text:?} {skip} {top}");
        }
    }
}

#[test]
fn invisible_agents_are_neither_returned_nor_counted() {
    let documents: Vec<Value> =
        (0..2_000).map(|at| document(&format!("rain-{at:04}"), json!({"tags": ["rain"]}))).collect();
    for (ranking, query_text) in
        [(Ranking::Text, ""), (Ranking::Text, "rain"), (Ranking::Semantic, "rain"), (Ranking::Auto, "rain")]
    {
        let index = index(ranking, &documents);
        let last = |agent: &Agent| agent.id.as_str() >= "rain-1998";
        let results = index.search(&SearchQuery { top: 1, ..text(query_text) }, &last);
        assert_eq!((ids(&results), results.has_more), (vec!["rain-1998"], true), "{query_text:?}");
        let results = index.search(&SearchQuery { skip: 1, top: 1, ..text(query_text) }, &last);
        assert_eq!((ids(&results), results.has_more), (vec!["rain-1999"], false), "{query_text:?}");
        let results = index.search(&text(query_text), &|_| false);
        assert!(results.hits.is_empty() && !results.has_more);
    }
}

#[test]
fn an_empty_index_finds_nothing() {
    for ranking in RANKINGS {
        let index = index(ranking, &[]);
        for query_text in ["", "rain"] {
            assert!(index.search(&text(query_text), &all).hits.is_empty());
        }
    }
}

#[test]
fn agents_without_words_are_found_by_their_ids() {
    let documents = [document("x9", json!({"name": "!"})), document("y", json!({"name": "?"}))];
    for ranking in [Ranking::Text, Ranking::Auto] {
        assert_eq!(ids(&index(ranking, &documents).search(&text("x9"), &all)), ["x9"]);
    }
}
