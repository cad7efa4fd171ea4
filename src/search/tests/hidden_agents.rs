//! Hidden agents: no result, score or order depends on them, and masks of what callers see are computed once.

use super::*;
use std::cell::RefCell;

const RANKINGS: [Ranking; 4] = [Ranking::Auto, Ranking::Text, Ranking::Semantic, Ranking::Hybrid];

fn is_visible(agent: &Agent) -> bool {
    !agent.id.as_str().starts_with("hidden")
}

fn visible_documents() -> Vec<Value> {
    let mut documents = vec![
        document("merger", json!({"name": "Merger desk", "description": "Prepares the acquisition of companies."})),
        document(
            "ledger",
            json!({"name": "Ledger", "description": "Books invoices for companies.", "tags": ["money"]}),
        ),
        document("weather", json!({"name": "Weather", "description": "Forecasts rain for acquisitions of land."})),
        document("projects", json!({"name": "Projects", "description": "Lists projects and their owners."})),
    ];
    documents.extend((0..40).map(|at| document(&format!("other-{at:02}"), json!({"tags": ["money", "projects"]}))));
    documents
}

/// Hidden agents that would change document frequencies, the mean length, the order of ids, and which words are known.
fn hidden_documents() -> Vec<Value> {
    let long = "acquisition merger companies invoices ".repeat(60);
    let mut documents = vec![
        document("hidden-a", json!({"name": "acquisition", "description": long})),
        document("hidden-b", json!({"name": "projectx merger", "tags": ["rain", "projectx"], "languages": ["en"]})),
        document("hidden-z", json!({"description": "Tomorrow's acquisition of Example Inc.", "status": "deprecated"})),
    ];
    // More similar words than a fuzzy match compares at most.
    let words: Vec<String> = (0..30_000).map(|at| format!("p{}", letters(at))).collect();
    documents.extend(
        words
            .chunks(300)
            .zip(0..)
            .map(|(words, at)| document(&format!("hidden-words-{at}"), json!({"description": words.join(" ")}))),
    );
    documents
}

fn letters(mut number: usize) -> String {
    let mut text = String::new();
    for _ in 0..5 {
        text.push(char::from(b'a' + (number % 26) as u8));
        number /= 26;
    }
    text
}

/// Every byte of the results that a caller could read.
fn results_text(index: &SearchIndex, mask: Option<&Arc<VisibilityMask>>) -> (String, Arc<VisibilityMask>) {
    let view = index.view(mask, &is_visible);
    let mut told = String::new();
    let texts = [
        "acquisition",
        "merger of companies",
        "projectx",
        "prajects",
        "project",
        "acquisition rain money",
        "buying another firm",
        "unknownword acquisition",
        "",
    ];
    for query_text in texts {
        for (skip, top) in [(0, 100), (0, 2), (1, 1), (3, 2), (40, 10)] {
            let results = view.search(&SearchQuery { skip, top, ..text(query_text) });
            let hits = results.hits.iter().map(|hit| (hit.agent.id.as_str(), hit.score.map(f32::to_bits)));
            told.push_str(&format!("{query_text} {skip} {top}: {:?} {}\n", hits.collect::<Vec<_>>(), results.has_more));
        }
    }
    (told, Arc::clone(view.mask()))
}

#[test]
fn r3_hidden_agents_change_neither_scores_nor_order_nor_pages() {
    for ranking in RANKINGS {
        let index = index(ranking, &visible_documents());
        let (before, mask) = results_text(&index, None);
        let mut everything = visible_documents();
        everything.extend(hidden_documents());
        index.update(agents(&everything));
        let (during, next_mask) = results_text(&index, Some(&mask));
        assert_eq!(during, before, "{ranking:?}: agents were published");
        assert_eq!(results_text(&index, None).0, before, "{ranking:?}: without the cached mask");
        index.update(agents(&visible_documents()));
        assert_eq!(results_text(&index, Some(&next_mask)).0, before, "{ranking:?}: agents were removed");
        assert!(before.contains("merger"), "{before}");
    }
}

#[test]
fn r3_statistics_come_from_what_the_caller_sees() {
    let mut documents = visible_documents();
    documents.extend(hidden_documents());
    let index = index(Ranking::Text, &documents);
    let score = |visible: &dyn Fn(&Agent) -> bool| index.search(&text("acquisition rain"), visible).hits[0].score;
    assert_ne!(score(&is_visible), score(&all), "a caller that sees every agent has its own statistics");
    // A word that only hidden agents have is unknown: similar words of visible agents match instead.
    let hits = index.search(&text("projectx"), &is_visible);
    assert!(ids(&hits).contains(&"projects"), "{hits:?}");
    assert!(!ids(&index.search(&text("projectx"), &all)).contains(&"projects"));
}

#[test]
fn visibility_is_evaluated_once_for_each_agent_and_then_for_changed_agents() {
    let documents = |changed: &str| -> Vec<Value> {
        (0..2_000)
            .map(|at| document(&format!("rain-{at:04}"), json!({"tags": [if at == 7 { changed } else { "rain" }]})))
            .collect()
    };
    let index = index(Ranking::Text, &documents("rain"));
    let evaluated = RefCell::new(Vec::new());
    let visible = |agent: &Agent| {
        evaluated.borrow_mut().push(agent.id.to_string());
        agent.id.as_str() >= "rain-1999" || agent.tags.iter().any(|tag| &**tag == "shown")
    };
    let view = index.view(None, &visible);
    for query_text in ["rain", "", "rain"] {
        assert_eq!(ids(&view.search(&text(query_text))), ["rain-1999"]);
    }
    assert_eq!(evaluated.take().len(), 2_000);
    let mask = Arc::clone(view.mask());
    assert_eq!(ids(&index.view(Some(&mask), &visible).search(&text("rain"))), ["rain-1999"]);
    assert_eq!(evaluated.take(), [""; 0], "the index has not changed");
    let mut changed = documents("shown");
    changed.push(document("rain-0000-new", json!({"tags": ["rain"]})));
    index.update(agents(&changed));
    let view = index.view(Some(&mask), &visible);
    assert_eq!(ids(&view.search(&text(""))), ["rain-0007", "rain-1999"]);
    assert_eq!(evaluated.take(), ["rain-0000-new", "rain-0007"]);
    let next_mask = Arc::clone(view.mask());
    index.update(agents(&documents("rain")));
    index.update(agents(&documents("shown")));
    // A mask of an older snapshot than the previous one is of no use.
    assert_eq!(ids(&index.view(Some(&next_mask), &visible).search(&text(""))), ["rain-0007", "rain-1999"]);
    assert_eq!(evaluated.take().len(), 2_000);
}

#[test]
fn a_search_keeps_its_state_of_the_index_during_an_update() {
    let index = index(Ranking::Text, &visible_documents());
    let view = index.view(None, &is_visible);
    index.update(Vec::new());
    assert_eq!(ids(&view.search(&text("merger"))), ["merger"]);
    assert!(index.view(Some(view.mask()), &is_visible).search(&text("merger")).hits.is_empty());
}
