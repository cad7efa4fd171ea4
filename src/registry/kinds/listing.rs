//! Parses a page of a list into its entries and the URL of the next page, without parsing the entries: a malformed
//! entry affects only itself.
//! The list is the whole text or a member `agents`, `items` or `entries`; an array, or a map from names to documents or
//! their URLs. A text that is one document is a list of one.

use crate::{
    net::Url,
    registry::{MOST_AGENTS, split},
    unit::json,
};
use bytes::Bytes;
use serde_json::Value;
use std::{collections::HashMap, ops::Range};

/// Members that may have the list, in order of preference.
const LISTS: &[&str] = &["agents", "items", "entries"];
/// Members that only a document has.
const DOCUMENT: &[&str] = &["endpoint", "endpoints", "skills", "supportedInterfaces", "transport", "@context"];
/// Members that may have pagination data, besides the top level.
const AROUND: &[&str] = &["metadata", "meta", "pagination"];
/// Members that have the cursor of the next page, and the query parameter that takes it.
const CURSORS: &[(&str, &str)] = &[
    ("nextCursor", "cursor"),
    ("next_cursor", "cursor"),
    ("nextPageToken", "pageToken"),
    ("next_page_token", "pageToken"),
    ("pageToken", "pageToken"),
];
/// Maximum length of a cursor in characters.
const LONGEST_CURSOR: usize = 4_096;

/// One page of a list.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) entries: Vec<Raw>,
    /// URL of the next page.
    pub(super) next: Option<Url>,
}

/// One entry, not parsed.
#[derive(Debug)]
pub(super) struct Raw {
    /// Key of the entry in a map.
    pub(super) name: Option<String>,
    pub(super) text: Bytes,
    /// Why the entry is invalid regardless of its text.
    pub(super) broken: Option<String>,
}

type Members = Vec<(String, Range<usize>)>;

/// Parses the page that was read from `url`.
///
/// # Errors
/// The text is malformed as a whole, or has no list.
pub(super) fn read(url: &Url, body: &Bytes) -> Result<Listing, String> {
    if let Err(why) = std::str::from_utf8(body) {
        return Err(format!("byte {} is not UTF-8", why.valid_up_to()));
    }
    let body = if body.starts_with(b"\xef\xbb\xbf") { &body.slice(3..) } else { body };
    match body.trim_ascii_start().first() {
        Some(b'[') => Ok(Listing { entries: items(body)?, next: None }),
        Some(b'{') => object(url, body),
        Some(_) => Err("it is neither a JSON object nor an array".to_owned()),
        None => Err("it is empty (write [] for no agents)".to_owned()),
    }
}

/// Checks the number of entries before anything is made of them: a comma alone counts as one.
fn bounded<T>(found: Vec<T>) -> Result<Vec<T>, String> {
    match found.len() {
        0..=MOST_AGENTS => Ok(found),
        many => Err(format!("it has {many} entries (at most {MOST_AGENTS})")),
    }
}

/// Returns the names and byte ranges of an object's members.
///
/// # Errors
/// The text is not an object, or the object is not closed.
pub(super) fn members(text: &Bytes) -> Result<Members, String> {
    let found = bounded(split::members(text)?)?;
    let named = found.into_iter().map(|(name, place)| {
        let raw = text.slice(name);
        let name = serde_json::from_slice(&raw).unwrap_or_else(|_| String::from_utf8_lossy(&raw).into_owned());
        (name, place)
    });
    Ok(named.collect())
}

fn items(text: &Bytes) -> Result<Vec<Raw>, String> {
    let places = bounded(split::items(text)?)?;
    Ok(places.into_iter().map(|place| Raw { name: None, text: text.slice(place), broken: None }).collect())
}

fn object(url: &Url, body: &Bytes) -> Result<Listing, String> {
    let members = members(body)?;
    let has = |names: &[&str]| members.iter().any(|(name, _)| names.contains(&name.as_str()));
    let first = |place: &Range<usize>| body.get(place.start).copied();
    let lists = members
        .iter()
        .filter(|(name, place)| LISTS.contains(&name.as_str()) && matches!(first(place), Some(b'[' | b'{')));
    let mut lists: Vec<_> = lists.collect();
    lists.sort_by_key(|(name, _)| LISTS.iter().position(|list| list == name));
    let entries = match lists.as_slice() {
        [(one, _), (other, _), ..] if one == other => return Err(format!("member '{one}' appears twice")),
        [(_, place), ..] if !has(DOCUMENT) => {
            let list = body.slice(place.clone());
            if first(place) == Some(b'[') { items(&list)? } else { map(&list, self::members(&list)?) }
        }
        _ if is_document(&members) => vec![Raw { name: None, text: body.clone(), broken: None }],
        _ if !members.is_empty() && members.iter().all(|(_, place)| first(place) == Some(b'"')) => {
            map(body, members.clone())
        }
        _ => return Err("it has no list (an array, or a member agents, items or entries)".to_owned()),
    };
    let next = next(url, body, &members)?;
    Ok(Listing { entries, next })
}

/// Returns whether the object is a document. Only otherwise a map of strings is taken for names and URLs.
fn is_document(members: &Members) -> bool {
    let has = |wanted: &str| members.iter().any(|(name, _)| name == wanted);
    DOCUMENT.iter().any(|name| has(name)) || has("id") || (has("name") && has("url")) || has("apiVersion")
}

fn map(text: &Bytes, members: Members) -> Vec<Raw> {
    let mut seen = HashMap::new();
    for (name, _) in &members {
        *seen.entry(name.clone()).or_insert(0_usize) += 1;
    }
    let each = |(name, place): (String, Range<usize>)| {
        let twice = seen.get(&name).is_some_and(|count| *count > 1);
        let broken = twice.then(|| "the name appears twice in the map".to_owned());
        Raw { name: Some(name), text: text.slice(place), broken }
    };
    members.into_iter().map(each).collect()
}

/// Returns the next page by a cursor, or by its number where the page has one (R139).
fn next(url: &Url, body: &Bytes, members: &Members) -> Result<Option<Url>, String> {
    let mut told: HashMap<String, Value> = HashMap::new();
    for (name, place) in members {
        let text = body.slice(place.clone());
        let around = AROUND.contains(&name.as_str()) && text.len() <= 1 << 16;
        if around && let Ok(Value::Object(inner)) = json::read(&text, 8) {
            told.extend(inner);
        }
    }
    // The top level has precedence over nested members.
    for (name, place) in members {
        let text = body.slice(place.clone());
        if !matches!(text.first(), Some(b'[' | b'{')) && text.len() <= 2 * LONGEST_CURSOR {
            told.extend(json::read(&text, 1).ok().map(|value| (name.clone(), value)));
        }
    }
    for (name, parameter) in CURSORS {
        match told.get(*name) {
            None | Some(Value::Null) => {}
            Some(Value::String(cursor)) if cursor.is_empty() => {}
            Some(Value::String(cursor)) if cursor.len() <= LONGEST_CURSOR => {
                return Ok(Some(with(url, &[(parameter, cursor)])));
            }
            Some(Value::Number(cursor)) => return Ok(Some(with(url, &[(parameter, &cursor.to_string())]))),
            Some(_) => return Err(format!("{name}: must be a string of at most {LONGEST_CURSOR} characters")),
        }
    }
    let number = |names: [&str; 2]| names.iter().find_map(|name| told.get(*name)?.as_u64());
    let (page, size) = (number(["page", "page"]), number(["per_page", "perPage"]));
    let pages = number(["total_pages", "totalPages"]);
    let more = match (page, size, pages, number(["total", "total"])) {
        (Some(page), _, Some(pages), _) => page < pages,
        (Some(page), Some(size), None, Some(total)) => size > 0 && page.saturating_mul(size) < total,
        _ => false,
    };
    Ok(page.filter(|_| more).map(|page| {
        let (page, size) = (page.saturating_add(1).to_string(), size.map(|size| size.to_string()));
        let size = size.as_ref().map(|size| ("per_page", size.as_str()));
        let set: Vec<(&str, &str)> = [("page", page.as_str())].into_iter().chain(size).collect();
        with(url, &set)
    }))
}

/// Returns `url` with these query parameters replaced.
fn with(url: &Url, set: &[(&str, &str)]) -> Url {
    let replaced = |name: &str| set.iter().any(|(other, _)| *other == name);
    let kept: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(name, _)| !replaced(name))
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    let mut url = url.clone();
    url.query_pairs_mut().clear().extend_pairs(kept).extend_pairs(set);
    url
}
