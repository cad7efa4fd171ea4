//! The metaschemas of the drafts, their vocabularies, and the base dialect of OpenAPI 3.1, for schemas that refer to
//! them. Titles, descriptions, comments and defaults are left out.

use serde_json::Value;
use std::sync::LazyLock;

/// The texts of the metaschemas.
const TEXTS: [&str; 21] = [
    include_str!("draft4.json"),
    include_str!("draft6.json"),
    include_str!("draft7.json"),
    include_str!("draft2019-09/schema.json"),
    include_str!("draft2019-09/applicator.json"),
    include_str!("draft2019-09/content.json"),
    include_str!("draft2019-09/core.json"),
    include_str!("draft2019-09/format.json"),
    include_str!("draft2019-09/meta-data.json"),
    include_str!("draft2019-09/validation.json"),
    include_str!("draft2020-12/schema.json"),
    include_str!("draft2020-12/applicator.json"),
    include_str!("draft2020-12/content.json"),
    include_str!("draft2020-12/core.json"),
    include_str!("draft2020-12/format-annotation.json"),
    include_str!("draft2020-12/format-assertion.json"),
    include_str!("draft2020-12/meta-data.json"),
    include_str!("draft2020-12/unevaluated.json"),
    include_str!("draft2020-12/validation.json"),
    include_str!("openapi3.1/dialect.json"),
    include_str!("openapi3.1/base.json"),
];

static METASCHEMAS: LazyLock<Vec<Value>> =
    LazyLock::new(|| TEXTS.iter().filter_map(|text| serde_json::from_str(text).ok()).collect());

/// Returns each metaschema and each vocabulary with its URI, which has no fragment.
pub fn all() -> impl Iterator<Item = (&'static str, &'static Value)> {
    METASCHEMAS.iter().filter_map(|schema| {
        let id = schema.get("$id").or_else(|| schema.get("id"))?.as_str()?;
        Some((id.trim_end_matches('#'), schema))
    })
}

/// Returns the metaschema or the vocabulary with this URI, which may end with an empty fragment.
pub fn with_uri(uri: &str) -> Option<&'static Value> {
    let uri = uri.trim_end_matches('#');
    all().find(|(id, _)| *id == uri).map(|(_, schema)| schema)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_metaschema_is_an_object_with_a_uri_of_its_own() {
        let uris: HashSet<_> = all().map(|(uri, _)| uri).collect();
        assert_eq!(uris.len(), TEXTS.len());
        assert!(uris.iter().all(|uri| uri.starts_with("http") && !uri.contains('#')));
    }

    #[test]
    fn every_reference_of_a_metaschema_has_a_target() {
        for (uri, schema) in all() {
            let mut values = vec![schema];
            while let Some(value) = values.pop() {
                match value {
                    Value::Array(items) => values.extend(items),
                    Value::Object(members) => values.extend(members.values()),
                    _ => {}
                }
                let Some(reference) = value.get("$ref").and_then(Value::as_str) else { continue };
                let (target, fragment) = reference.split_once('#').unwrap_or((reference, ""));
                let folder = uri.rsplit_once('/').unwrap().0;
                let document = match target {
                    "" => schema,
                    _ => with_uri(target).or_else(|| with_uri(&format!("{folder}/{target}"))).unwrap(),
                };
                assert!(document.pointer(fragment).is_some(), "{uri} {reference}");
            }
        }
    }

    #[test]
    fn a_metaschema_is_found_with_and_without_an_empty_fragment() {
        assert!(with_uri("http://json-schema.org/draft-07/schema#").is_some());
        assert_eq!(
            with_uri("http://json-schema.org/draft-07/schema#"),
            with_uri("http://json-schema.org/draft-07/schema")
        );
        assert_eq!(with_uri("https://example.com"), None);
    }
}
