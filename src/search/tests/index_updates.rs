//! Updates: an index after many updates equals an index that is built at once.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};

const SUBJECTS: &[&str] = &["rain", "invoice", "translation", "music", "天气预报", "Kündigung", "protein", "hotel"];

/// Pseudorandom numbers, equal in each run.
fn random_number(seed: &mut u64) -> usize {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed as usize
}

fn random_document(id: usize, seed: &mut u64) -> Value {
    let subject = |seed: &mut u64| SUBJECTS[random_number(seed) % SUBJECTS.len()];
    let description = format!("{} and {} of {}", subject(seed), subject(seed), random_number(seed) % 50);
    let status = ["active", "inactive", "deprecated"][random_number(seed) % 3];
    let languages: &[&str] = [&["en"][..], &[], &["zh-CN", "de"]][random_number(seed) % 3];
    document(
        &format!("agent-{id}"),
        json!({"description": description, "tags": [subject(seed)], "status": status, "supported_languages": languages}),
    )
}

/// Runs many queries, whose results differ if the indexes differ.
fn run_queries(index: &SearchIndex) -> Vec<Vec<(String, Option<f32>)>> {
    let mut queries: Vec<SearchQuery> =
        SUBJECTS.iter().chain(&["", "agent", "rainn", "7"]).map(|query_text| text(query_text)).collect();
    for status in [StatusFilter::Active, StatusFilter::Inactive, StatusFilter::Deprecated] {
        queries.push(SearchQuery {
            filters: SearchFilters { status: vec![status], ..SearchFilters::default() },
            top: 100,
            ..SearchQuery::default()
        });
    }
    let languages =
        SearchFilters { languages: vec!["zh".to_owned()], tags: vec!["rain".to_owned()], ..SearchFilters::default() };
    queries.push(SearchQuery { filters: languages, top: 100, ..SearchQuery::default() });
    let hits = |query: &SearchQuery| {
        let results = index.search(query, &all);
        results.hits.into_iter().map(|hit| (hit.agent.id.to_string(), hit.score)).collect()
    };
    queries.iter().map(hits).collect()
}

#[test]
fn an_updated_index_answers_like_a_new_one() {
    let mut seed = 0x2545_f491_4f6c_dd1d;
    let mut documents: Vec<Value> = Vec::new();
    let updated = index(Ranking::Auto, &[]);
    for round in 0..30 {
        match round % 6 {
            5 => documents.clear(),
            _ => {
                documents.retain(|_| !random_number(&mut seed).is_multiple_of(4));
                for _ in 0..random_number(&mut seed) % 12 {
                    let document = random_document(random_number(&mut seed) % 40, &mut seed);
                    documents.retain(|other| other["id"] != document["id"]);
                    documents.push(document);
                }
            }
        }
        for at in 1..documents.len() {
            documents.swap(at, random_number(&mut seed) % at);
        }
        updated.update(agents(&documents));
        assert_eq!(run_queries(&updated), run_queries(&index(Ranking::Auto, &documents)), "round {round}");
    }
}

#[test]
fn removed_agents_are_not_found_and_changed_agents_are_found_by_their_new_words_only() {
    for ranking in [Ranking::Text, Ranking::Semantic, Ranking::Auto] {
        let index =
            index(ranking, &[document("a", json!({"tags": ["rain"]})), document("b", json!({"tags": ["music"]}))]);
        index.update(agents(&[document("b", json!({"tags": ["invoice"]}))]));
        for (query_text, expected) in [("rain", &[][..]), ("music", &[]), ("invoice", &["b"])] {
            assert_eq!(ids(&index.search(&text(query_text), &all)), expected, "{ranking:?} {query_text}");
        }
        index.update(Vec::new());
        assert_eq!(index.search(&SearchQuery { top: 9, ..SearchQuery::default() }, &all).hits.len(), 0);
    }
}

#[test]
fn an_unchanged_document_is_not_indexed_again() {
    let index = SearchIndex::default();
    let (rain, music) = (document("a", json!({"tags": ["rain"]})), document("a", json!({"tags": ["music"]})));
    index.update(vec![agent_with_digest(&rain, [1; 32])]);
    // Equal digests mean equal documents; this one differs, which shows whether the index read it.
    let other = agent_with_digest(&music, [1; 32]);
    index.update(vec![Arc::clone(&other)]);
    let results = index.search(&text("rain"), &all);
    assert!(Arc::ptr_eq(&results.hits[0].agent, &other), "a hit has the newest record");
    assert!(index.search(&text("music"), &all).hits.is_empty());
    index.update(vec![agent_with_digest(&music, [2; 32])]);
    assert_eq!(ids(&index.search(&text("music"), &all)), ["a"]);
}

#[test]
fn of_two_agents_with_one_id_the_first_is_kept() {
    let index =
        index(Ranking::Text, &[document("a", json!({"tags": ["rain"]})), document("a", json!({"tags": ["music"]}))]);
    assert_eq!(ids(&index.search(&text("rain"), &all)), ["a"]);
    assert!(index.search(&text("music"), &all).hits.is_empty());
}

#[test]
fn an_agent_with_more_text_than_is_indexed_is_found_by_its_beginning() {
    let prose = |word: &str| format!("{word} {}", "filler ".repeat(5_000));
    let operation = |at: usize| json!({"name": format!("op{at}"), "description": prose(&format!("word{at}"))});
    let operations: Vec<Value> = (0..256).map(operation).collect();
    let index = index(Ranking::Auto, &[document("a", json!({"description": prose("rain"), "operations": operations}))]);
    for (query_text, expected) in [("rain", &["a"][..]), ("word0", &["a"]), ("word255", &[])] {
        let query = SearchQuery { top: 5, ..text(query_text) };
        let results = SearchIndex::search(&index, &query, &all);
        assert_eq!(ids(&results), expected, "{query_text}");
    }
}

#[test]
fn searches_see_all_of_an_update_or_nothing_of_it_and_never_wait() {
    let index = SearchIndex::default();
    let version = |word: &str| -> Vec<Arc<Agent>> {
        agents(&(0..200).map(|at| document(&format!("a{at}"), json!({"tags": [word]}))).collect::<Vec<_>>())
    };
    let versions = [version("rain"), version("music")];
    index.update(versions[0].clone());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..40).for_each(|round| index.update(versions[round % 2].clone()));
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            let results = index.search(&text("rain music"), &all);
            let tags: std::collections::BTreeSet<_> =
                results.hits.iter().map(|hit| hit.agent.tags[0].clone()).collect();
            assert!(results.hits.len() == 100 && results.has_more && tags.len() == 1);
        }
    });
}
