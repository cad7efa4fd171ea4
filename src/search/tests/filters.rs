//! Filters: each filter must match, and all of its values.

use super::*;

fn sample_index() -> SearchIndex {
    let documents = [
        document(
            "a",
            json!({"capabilities": ["Translation", "nlp"], "tags": ["Text"], "supported_languages": ["en", "zh-CN"]}),
        ),
        document(
            "b",
            json!({"capabilities": ["translation"], "tags": ["text", "fast"], "supported_languages": ["de-AT"]}),
        ),
        document("c", json!({"capabilities": ["summary"], "tags": ["ÜBERSICHT"]})),
        document("d", json!({"capabilities": ["translation"], "status": "inactive", "supported_languages": ["zhx"]})),
        document("e", json!({"capabilities": ["fast"], "status": "deprecated", "supported_languages": ["zh_TW"]})),
    ];
    index(Ranking::Text, &documents)
}

fn strings(strings: &[&str]) -> Vec<String> {
    strings.iter().map(|word| (*word).to_owned()).collect()
}

fn matching_ids(filters: SearchFilters) -> Vec<String> {
    let results = sample_index().search(&SearchQuery { filters, top: 100, ..SearchQuery::default() }, &all);
    assert!(results.hits.iter().all(|hit| hit.score.is_none()));
    ids(&results).into_iter().map(str::to_owned).collect()
}

#[test]
fn r21_r22_agents_match_all_filter_values_case_insensitively() {
    let cases: [(&[&str], &[&str], &[&str]); 9] = [
        (&["translation"], &[], &["a", "b"]),
        (&["TRANSLATION", "Nlp"], &[], &["a"]),
        (&["translation"], &["text"], &["a", "b"]),
        (&["translation"], &["text", "fast"], &["b"]),
        (&[], &["übersicht"], &["c"]),
        (&["fast"], &[], &["e"]), // a tag is not a capability
        (&["translat"], &[], &[]),
        (&["translation", "nothing"], &[], &[]),
        (&[""], &[], &[]),
    ];
    for (capabilities, tags, expected) in cases {
        let filters =
            SearchFilters { capabilities: strings(capabilities), tags: strings(tags), ..SearchFilters::default() };
        assert_eq!(matching_ids(filters), expected, "{capabilities:?} {tags:?}");
    }
}

#[test]
fn r15_a_language_matches_its_variants_and_agents_without_languages_match_all() {
    let cases: [(&[&str], &[&str]); 9] = [
        (&["zh"], &["a", "c", "e"]),
        (&["ZH-cn"], &["a", "c"]),
        (&["zh-TW"], &["c", "e"]),
        (&["zh-Hant"], &["c"]),
        (&["de"], &["b", "c"]),
        (&["de-AT-1996"], &["c"]),
        (&["en", "zh"], &["a", "c"]),
        (&["*"], &["a", "b", "c", "e"]),
        (&["z"], &["c"]),
    ];
    for (languages, expected) in cases {
        assert_eq!(
            matching_ids(SearchFilters { languages: strings(languages), ..SearchFilters::default() }),
            expected,
            "{languages:?}"
        );
    }
}

#[test]
fn r15_inactive_agents_are_found_only_by_an_explicit_status_filter() {
    let cases: [(&[StatusFilter], &[&str]); 5] = [
        (&[], &["a", "b", "c", "e"]),
        (&[StatusFilter::Inactive], &["d"]),
        (&[StatusFilter::Deprecated], &["e"]),
        (&[StatusFilter::Active], &["a", "b", "c"]),
        (&[StatusFilter::Inactive, StatusFilter::Deprecated, StatusFilter::Inactive], &["d", "e"]),
    ];
    for (status, expected) in cases {
        assert_eq!(
            matching_ids(SearchFilters { status: status.to_vec(), ..SearchFilters::default() }),
            expected,
            "{status:?}"
        );
    }
}

#[test]
fn r22_filters_apply_to_ranked_searches() {
    let index = sample_index();
    let filters = SearchFilters { tags: strings(&["fast"]), ..SearchFilters::default() };
    let query = SearchQuery { filters, ..text("translation") };
    assert_eq!(ids(&index.search(&query, &all)), ["b"]);
    let query = SearchQuery {
        filters: SearchFilters { status: vec![StatusFilter::Inactive], ..SearchFilters::default() },
        ..text("translation")
    };
    assert_eq!(ids(&index.search(&query, &all)), ["d"]);
}

#[test]
fn hostile_filter_values_match_nothing_and_terminate() {
    let long = "x".repeat(1 << 20);
    for value in [long.as_str(), "\u{1}ctranslation", "a\0b", "ctranslation", "\u{10ffff}", "-"] {
        for at in 0..3 {
            let mut filters = SearchFilters::default();
            let list = [&mut filters.capabilities, &mut filters.tags, &mut filters.languages].into_iter().nth(at);
            list.unwrap().push(value.to_owned());
            let expected: &[&str] = if at == 2 { &["c"] } else { &[] };
            assert_eq!(matching_ids(filters), expected, "{at} {value:.20}");
        }
    }
    let many = (0..50_000).map(|at| format!("w{at}")).collect();
    assert_eq!(matching_ids(SearchFilters { capabilities: many, ..SearchFilters::default() }), [""; 0]);
    assert_eq!(
        matching_ids(SearchFilters { tags: vec!["text".to_owned(); 50_000], ..SearchFilters::default() }),
        ["a", "b"]
    );
}

#[test]
fn an_agent_is_found_by_a_very_long_capability() {
    let long = "long ".repeat(1000);
    let index = index(Ranking::Text, &[document("a", json!({"capabilities": [long]}))]);
    let query = SearchQuery {
        filters: SearchFilters { capabilities: vec![long], ..SearchFilters::default() },
        top: 1,
        ..SearchQuery::default()
    };
    assert_eq!(ids(&index.search(&query, &all)), ["a"]);
}
