//! The text of a field that tells the caller: visible ASCII and spaces inside. Everything else is percent-encoded, also
//! `%`, and in a list its separator, so that no value can be read as two, and every value can be decoded.

use crate::{
    auth::CallerClaim,
    values::{percent_encode_field, percent_encode_list_item},
};
use serde_json::Value;
use std::borrow::Cow;

/// Returns values as one text that commas separate; `None` for no value.
pub(super) fn list_text<'a>(items: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut text = None::<String>;
    for item in items {
        let list = text.get_or_insert_default();
        if !list.is_empty() {
            list.push(',');
        }
        list.push_str(&percent_encode_list_item(item));
    }
    text
}

/// Returns a claim as the text of a field; `None` for an empty list.
///
/// # Errors
/// Why agents cannot be told the claim.
pub(super) fn claim_text(claim: &CallerClaim) -> Result<Option<String>, &'static str> {
    let value = match claim {
        CallerClaim::Unusable(why) => return Err(why),
        CallerClaim::Value(value) => value,
    };
    Ok(match value {
        Value::Array(items) => {
            let items: Vec<Cow<'_, str>> = items.iter().map(scalar_text).collect();
            list_text(items.iter().map(|item| &**item))
        }
        scalar => Some(percent_encode_field(&scalar_text(scalar))),
    })
}

fn scalar_text(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::percent_decode;
    use serde_json::json;

    #[test]
    fn a_text_stays_readable_and_decodes_to_itself() {
        assert_eq!(percent_encode_field("oauth:acme/client-7"), "oauth:acme/client-7");
        assert_eq!(percent_encode_field("Ann Example, PhD"), "Ann Example, PhD");
        assert_eq!(percent_encode_field("Zoë 100%"), "Zo%C3%AB 100%25");
        assert_eq!(percent_encode_field(" a "), "%20a%20");
        for text in ["a%0d%0ab", "a\r\nX-Admin: 1", "  ", "日本", "\u{7f}", "%"] {
            let field = percent_encode_field(text);
            assert!(field.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{field}");
            assert_eq!(field.trim(), field);
            assert_eq!(percent_decode(&field).as_deref(), Some(text));
        }
    }

    #[test]
    fn an_item_never_becomes_two() {
        assert_eq!(list_text(["staff", "a,admin"]).unwrap(), "staff,a%2Cadmin");
        assert_eq!(list_text([]), None);
        let claim = CallerClaim::Value(json!(["x,y", 7, true]));
        assert_eq!(claim_text(&claim), Ok(Some("x%2Cy,7,true".to_owned())));
        assert_eq!(claim_text(&CallerClaim::Value(json!([]))), Ok(None));
        assert_eq!(claim_text(&CallerClaim::Value(json!(1.5))), Ok(Some("1.5".to_owned())));
        assert!(claim_text(&CallerClaim::Unusable("why")).is_err());
    }
}
