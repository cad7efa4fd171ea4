//! Rewrites absolute URLs at JSON Pointers of a document, and nothing else: members keep their order, and numbers their
//! digits.

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt};

/// The most segments of a pointer.
const MAX_SEGMENTS: usize = 16;

/// A JSON Pointer (RFC 6901) in which `*` stands for every member or item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UrlPointer(Box<[Box<str>]>);

impl UrlPointer {
    /// Compiles a pointer.
    ///
    /// # Errors
    /// Why the text is no pointer.
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        let segments = text.strip_prefix('/').ok_or("does not begin with a slash")?.split('/');
        let segments: Box<[Box<str>]> =
            segments.map(|segment| segment.replace("~1", "/").replace("~0", "~").into()).collect();
        if segments.len() > MAX_SEGMENTS {
            return Err(format!("has more than {MAX_SEGMENTS} segments"));
        }
        Ok(Self(segments))
    }
}

/// The document would be too long with the URLs of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RewriteTooLong;

/// Returns the document with the URLs at the pointers as `map` returns them, or `None` if it changes nothing or the
/// document is no JSON. URLs become longer, so the result has a bound of its own.
///
/// # Errors
/// The result is longer than `max_bytes`.
pub(super) fn rewrite_urls(
    document: &[u8],
    pointers: &[UrlPointer],
    max_bytes: usize,
    map: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Vec<u8>>, RewriteTooLong> {
    let Ok(document) = serde_json::from_slice::<&RawValue>(document) else { return Ok(None) };
    let pointers: Vec<&[Box<str>]> = pointers.iter().map(|pointer| &*pointer.0).collect();
    let output = String::with_capacity(document.get().len() + 64);
    let mut rewriter = Rewriter { map, output, max_bytes, has_changed: false };
    match rewriter.write(document, &pointers) {
        _ if rewriter.output.len() > max_bytes => Err(RewriteTooLong),
        Some(()) if rewriter.has_changed => Ok(Some(rewriter.output.into_bytes())),
        _ => Ok(None),
    }
}

struct Rewriter<'a> {
    map: &'a dyn Fn(&str) -> Option<String>,
    output: String,
    max_bytes: usize,
    has_changed: bool,
}

impl Rewriter<'_> {
    /// Writes a value below which the rest of the pointers leads; `None` ends the work, at the latest with the value with
    /// which the output exceeds its bound.
    fn write(&mut self, value: &RawValue, pointers: &[&[Box<str>]]) -> Option<()> {
        if self.output.len() > self.max_bytes {
            return None;
        }
        let text = value.get();
        match text.as_bytes().first()? {
            b'{' if !pointers.is_empty() => self.write_object(text, pointers),
            b'[' if !pointers.is_empty() => self.write_array(text, pointers),
            b'"' if pointers.iter().any(|rest| rest.is_empty()) => self.write_url(text),
            _ => {
                self.output.push_str(text);
                Some(())
            }
        }
    }

    fn write_object(&mut self, text: &str, pointers: &[&[Box<str>]]) -> Option<()> {
        let Members(members) = serde_json::from_str(text).ok()?;
        self.output.push('{');
        for (at, (name, value)) in members.iter().enumerate() {
            self.separate(at);
            self.output.push_str(&serde_json::to_string(name).ok()?);
            self.output.push(':');
            let below: Vec<_> = pointers.iter().filter_map(|rest| step(rest, |segment| segment == &**name)).collect();
            self.write(value, &below)?;
        }
        self.output.push('}');
        Some(())
    }

    fn write_array(&mut self, text: &str, pointers: &[&[Box<str>]]) -> Option<()> {
        let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
        self.output.push('[');
        for (at, value) in items.iter().enumerate() {
            self.separate(at);
            let below: Vec<_> =
                pointers.iter().filter_map(|rest| step(rest, |segment| segment.parse() == Ok(at))).collect();
            self.write(value, &below)?;
        }
        self.output.push(']');
        Some(())
    }

    fn write_url(&mut self, text: &str) -> Option<()> {
        let url: Cow<'_, str> = serde_json::from_str(text).ok()?;
        match (self.map)(&url) {
            Some(mapped) => {
                self.has_changed = true;
                self.output.push_str(&serde_json::to_string(&mapped).ok()?);
            }
            None => self.output.push_str(text),
        }
        Some(())
    }

    fn separate(&mut self, at: usize) {
        if at > 0 {
            self.output.push(',');
        }
    }
}

/// Returns the rest of a pointer whose first segment stands for a member.
fn step<'p>(pointer: &&'p [Box<str>], is_member: impl Fn(&str) -> bool) -> Option<&'p [Box<str>]> {
    let (first, rest) = pointer.split_first()?;
    (&**first == "*" || is_member(first)).then_some(rest)
}

/// The members of an object, in their order.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewrite(document: &str, pointers: &[&str]) -> Option<String> {
        let pointers: Vec<UrlPointer> = pointers.iter().map(|text| UrlPointer::compile(text).unwrap()).collect();
        let map = |url: &str| url.strip_prefix("http://agent").map(|rest| format!("https://gate{rest}"));
        let rewritten = rewrite_urls(document.as_bytes(), &pointers, 1 << 20, &map).unwrap();
        rewritten.map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn only_urls_at_the_pointers_change_and_everything_else_stays_as_written() {
        let document = r#"{"z":1.10,"url":"http://agent/a","a":[{"url":"http:\/\/agent/b"},{"url":"http://other"}],"b":12345678901234567890,"c":{"url":"http://agent/c"}}"#;
        let rewritten = r#"{"z":1.10,"url":"https://gate/a","a":[{"url":"https://gate/b"},{"url":"http://other"}],"b":12345678901234567890,"c":{"url":"http://agent/c"}}"#;
        assert_eq!(rewrite(document, &["/url", "/a/*/url"]).as_deref(), Some(rewritten));
        assert_eq!(rewrite(r#"[{"u":"http://agent/1"}]"#, &["/0/u"]).as_deref(), Some(r#"[{"u":"https://gate/1"}]"#));
    }

    #[test]
    fn documents_without_such_urls_and_other_bodies_are_left_alone() {
        for document in
            [r#"{"url":"http://other"}"#, r#"{"url":{"url":"http://agent"}}"#, "{", "", "null", r#"{"url":5}"#]
        {
            assert_eq!(rewrite(document, &["/url"]), None, "{document}");
        }
        assert_eq!(rewrite(r#"{"url":"http://agent"}"#, &[]), None);
    }

    #[test]
    fn the_result_is_bounded_and_the_work_ends_at_the_bound() {
        let document = serde_json::to_vec(&vec!["http://agent"; 10_000]).unwrap();
        let pointers = [UrlPointer::compile("/*").unwrap()];
        let mapped = std::cell::Cell::new(0);
        let map = |_: &str| {
            mapped.set(mapped.get() + 1);
            Some("x".repeat(1_000))
        };
        assert_eq!(rewrite_urls(&document, &pointers, 300 << 10, &map), Err(RewriteTooLong));
        assert!(mapped.get() < 310, "{} URLs were written", mapped.get());
        let rewritten = rewrite_urls(&document, &pointers, 11 << 20, &map).unwrap();
        assert_eq!(rewritten.map(|bytes| bytes.len()), Some(10_000 * 1_003 + 1));
    }

    #[test]
    fn what_is_no_pointer_is_refused() {
        assert!(UrlPointer::compile("url").is_err());
        assert!(UrlPointer::compile(&"/a".repeat(17)).is_err());
    }
}
