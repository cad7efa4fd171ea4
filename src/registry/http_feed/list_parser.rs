//! Parses a page of a list into its entries and the URL of the next page, without parsing the entries: a malformed
//! entry affects only itself.
//! The list is the whole text or a member `agents`, `items` or `entries`; an array, or a map from names to documents or
//! their URLs. A text that is one document is a list of one.

use crate::{
    net::Url,
    registry::{MAX_AGENTS, json_document_ranges},
    values::json,
};
use bytes::Bytes;
use serde_json::Value;
use std::{collections::HashMap, ops::Range};

/// Members that may have the list, in order of preference.
const LIST_MEMBERS: &[&str] = &["agents", "items", "entries"];
/// Members that only a document has.
const DOCUMENT_MEMBERS: &[&str] = &[
    "endpoint",
    "endpoints",
    "skills",
    "supportedInterfaces",
    "transport",
    "@context",
    "openapi",
    "swagger",
    "serverInfo",
];
/// Members that may have pagination data, besides the top level.
const PAGINATION_MEMBERS: &[&str] = &["metadata", "meta", "pagination"];
/// Members that have the cursor of the next page, and the query parameter that takes it.
const CURSOR_MEMBERS: &[(&str, &str)] = &[
    ("nextCursor", "cursor"),
    ("next_cursor", "cursor"),
    ("nextPageToken", "pageToken"),
    ("next_page_token", "pageToken"),
    ("pageToken", "pageToken"),
];
/// Maximum length of a cursor in characters.
const MAX_CURSOR_LENGTH: usize = 4_096;

/// One page of a list.
#[derive(Debug)]
pub(super) struct ListPage {
    pub(super) entries: Vec<RawEntry>,
    /// URL of the next page.
    pub(super) next: Option<Url>,
}

/// One entry, not parsed.
#[derive(Clone, Debug)]
pub(super) struct RawEntry {
    /// Key of the entry in a map.
    pub(super) name: Option<String>,
    pub(super) text: Bytes,
    /// Why the entry is invalid regardless of its text.
    pub(super) error: Option<String>,
}

type MemberRanges = Vec<(String, Range<usize>)>;

/// Parses the page that was read from `url`.
///
/// # Errors
/// The text is malformed as a whole, or has no list.
pub(super) fn parse_page(url: &Url, body: &Bytes) -> Result<ListPage, String> {
    if let Err(why) = std::str::from_utf8(body) {
        return Err(format!("byte {} is not UTF-8", why.valid_up_to()));
    }
    let body = if body.starts_with(b"\xef\xbb\xbf") { &body.slice(3..) } else { body };
    match body.trim_ascii_start().first() {
        Some(b'[') => Ok(ListPage { entries: parse_items(body)?, next: None }),
        Some(b'{') => parse_object(url, body),
        Some(_) => Err("it is neither a JSON object nor an array".to_owned()),
        None => Err("it is empty (write [] for no agents)".to_owned()),
    }
}

/// Checks the number of entries before they are stored: a comma alone counts as an entry.
fn check_count<T>(entries: Vec<T>) -> Result<Vec<T>, String> {
    match entries.len() {
        0..=MAX_AGENTS => Ok(entries),
        count => Err(format!("it has {count} entries (at most {MAX_AGENTS})")),
    }
}

/// Returns the names and byte ranges of an object's members.
///
/// # Errors
/// The text is not an object, or the object is not closed.
pub(super) fn member_ranges(text: &Bytes) -> Result<MemberRanges, String> {
    let ranges = check_count(json_document_ranges::member_ranges(text)?)?;
    let members = ranges.into_iter().map(|(name, range)| {
        let raw = text.slice(name);
        let name = serde_json::from_slice(&raw).unwrap_or_else(|_| String::from_utf8_lossy(&raw).into_owned());
        (name, range)
    });
    Ok(members.collect())
}

fn parse_items(text: &Bytes) -> Result<Vec<RawEntry>, String> {
    let ranges = check_count(json_document_ranges::item_ranges(text)?)?;
    Ok(ranges.into_iter().map(|range| RawEntry { name: None, text: text.slice(range), error: None }).collect())
}

fn parse_object(url: &Url, body: &Bytes) -> Result<ListPage, String> {
    let members = member_ranges(body)?;
    let has = |names: &[&str]| members.iter().any(|(name, _)| names.contains(&name.as_str()));
    let first_byte = |range: &Range<usize>| body.get(range.start).copied();
    let lists = members.iter().filter(|(name, range)| {
        LIST_MEMBERS.contains(&name.as_str()) && matches!(first_byte(range), Some(b'[' | b'{'))
    });
    let mut lists: Vec<_> = lists.collect();
    lists.sort_by_key(|(name, _)| LIST_MEMBERS.iter().position(|list| list == name));
    let entries = match lists.as_slice() {
        [(one, _), (other, _), ..] if one == other => return Err(format!("member '{one}' appears twice")),
        [(_, range), ..] if !has(DOCUMENT_MEMBERS) => {
            let list = body.slice(range.clone());
            if first_byte(range) == Some(b'[') {
                parse_items(&list)?
            } else {
                parse_map(&list, self::member_ranges(&list)?)
            }
        }
        _ if is_document(&members) => vec![RawEntry { name: None, text: body.clone(), error: None }],
        _ if !members.is_empty() && members.iter().all(|(_, range)| first_byte(range) == Some(b'"')) => {
            parse_map(body, members.clone())
        }
        _ => return Err("it has no list (an array, or a member agents, items or entries)".to_owned()),
    };
    let next = next_page(url, body, &members)?;
    Ok(ListPage { entries, next })
}

/// Returns whether the object is a document. An object of strings that is not counts as a map of names to URLs.
fn is_document(members: &MemberRanges) -> bool {
    let has = |member: &str| members.iter().any(|(name, _)| name == member);
    // R65: the least that a descriptor has.
    let is_descriptor = || has("name") && has("version") && has("capabilities");
    DOCUMENT_MEMBERS.iter().any(|name| has(name))
        || has("id")
        || (has("name") && has("url"))
        || has("apiVersion")
        || (has("name") && (has("remotes") || has("packages")))
        || is_descriptor()
}

fn parse_map(text: &Bytes, members: MemberRanges) -> Vec<RawEntry> {
    let mut occurrences = HashMap::new();
    for (name, _) in &members {
        *occurrences.entry(name.clone()).or_insert(0_usize) += 1;
    }
    let to_entry = |(name, range): (String, Range<usize>)| {
        let duplicate = occurrences.get(&name).is_some_and(|count| *count > 1);
        let error = duplicate.then(|| "the name appears twice in the map".to_owned());
        RawEntry { name: Some(name), text: text.slice(range), error }
    };
    members.into_iter().map(to_entry).collect()
}

/// Returns the next page by a cursor, or by its number where the page has one (R139).
fn next_page(url: &Url, body: &Bytes, members: &MemberRanges) -> Result<Option<Url>, String> {
    let mut pagination: HashMap<String, Value> = HashMap::new();
    for (name, range) in members {
        let text = body.slice(range.clone());
        let paginates = PAGINATION_MEMBERS.contains(&name.as_str()) && text.len() <= 1 << 16;
        if paginates && let Ok(Value::Object(inner)) = json::parse(&text, 8) {
            pagination.extend(inner);
        }
    }
    // The top level has precedence over nested members.
    for (name, range) in members {
        let text = body.slice(range.clone());
        if !matches!(text.first(), Some(b'[' | b'{')) && text.len() <= 2 * MAX_CURSOR_LENGTH {
            pagination.extend(json::parse(&text, 1).ok().map(|value| (name.clone(), value)));
        }
    }
    for (name, parameter) in CURSOR_MEMBERS {
        match pagination.get(*name) {
            None | Some(Value::Null) => {}
            Some(Value::String(cursor)) if cursor.is_empty() => {}
            Some(Value::String(cursor)) if cursor.len() <= MAX_CURSOR_LENGTH => {
                return Ok(Some(with_query(url, &[(parameter, cursor)])));
            }
            Some(Value::Number(cursor)) => return Ok(Some(with_query(url, &[(parameter, &cursor.to_string())]))),
            Some(_) => return Err(format!("{name}: must be a string of at most {MAX_CURSOR_LENGTH} characters")),
        }
    }
    let number = |names: [&str; 2]| names.iter().find_map(|name| pagination.get(*name)?.as_u64());
    let (page, size) = (number(["page", "page"]), number(["per_page", "perPage"]));
    let pages = number(["total_pages", "totalPages"]);
    let has_more = match (page, size, pages, number(["total", "total"])) {
        (Some(page), _, Some(pages), _) => page < pages,
        (Some(page), Some(size), None, Some(total)) => size > 0 && page.saturating_mul(size) < total,
        _ => false,
    };
    Ok(page.filter(|_| has_more).map(|page| {
        let (page, size) = (page.saturating_add(1).to_string(), size.map(|size| size.to_string()));
        let size = size.as_ref().map(|size| ("per_page", size.as_str()));
        let parameters: Vec<(&str, &str)> = [("page", page.as_str())].into_iter().chain(size).collect();
        with_query(url, &parameters)
    }))
}

/// Returns `url` with these query parameters replaced.
fn with_query(url: &Url, parameters: &[(&str, &str)]) -> Url {
    let is_replaced = |name: &str| parameters.iter().any(|(other, _)| *other == name);
    let remaining: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(name, _)| !is_replaced(name))
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    let mut url = url.clone();
    url.query_pairs_mut().clear().extend_pairs(remaining).extend_pairs(parameters);
    url
}
