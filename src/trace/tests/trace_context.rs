//! The trace context: the cases of W3C's own suite, and the bounds.

use super::super::trace_context::{RemoteContext, Traceparent};
use http::{HeaderMap, HeaderName, HeaderValue};

const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let field =
        |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
    let mut headers = HeaderMap::new();
    for (name, value) in fields.iter().map(field) {
        headers.append(name, value);
    }
    headers
}

fn context(fields: &[(&str, &str)]) -> RemoteContext {
    RemoteContext::from_headers(&headers(fields))
}

#[test]
fn a_traceparent_is_read_and_written_alike() {
    for text in [VALID, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"] {
        let parent = Traceparent::parse(text.as_bytes()).unwrap();
        assert_eq!(parent.is_sampled, text.ends_with('1'));
        assert_eq!(std::str::from_utf8(&parent.to_text()).unwrap(), text);
    }
}

#[test]
fn the_unknown_flags_and_the_known_part_of_a_later_version_count() {
    for valid in [
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff",
        "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-the-future-will-be-like",
    ] {
        let parent = Traceparent::parse(valid.as_bytes()).unwrap_or_else(|| panic!("{valid}"));
        assert!(parent.is_sampled, "{valid}");
        assert_eq!(std::str::from_utf8(&parent.to_text()).unwrap(), VALID);
    }
}

#[test]
fn an_invalid_traceparent_is_no_parent() {
    for invalid in [
        "",
        "00",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-.af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333.-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g",
        "0g-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-extra",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.",
        "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.x",
        "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
        "00-0af7651916cd43dd8448eb211c80319c1-b7ad6b7169203331-01",
        "000-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ] {
        assert_eq!(Traceparent::parse(invalid.as_bytes()), None, "{invalid}");
    }
}

#[test]
fn two_traceparents_are_none_and_the_tracestate_goes_with_them() {
    let read = context(&[("traceparent", VALID), ("traceparent", VALID), ("tracestate", "a=1")]);
    assert_eq!((read.parent, read.tracestate, read.is_reduced), (None, None, true));
    assert_eq!(context(&[("accept", "*/*")]), RemoteContext::default());
    let read = context(&[("traceparent", "00-broken"), ("tracestate", "a=1"), ("baggage", "user=1")]);
    assert_eq!((read.parent, read.tracestate), (None, None));
    assert_eq!(read.baggage.unwrap(), "user=1", "baggage does not belong to the trace context");
}

#[test]
fn a_tracestate_passes_within_its_bounds() {
    let state = |values: &[&str]| {
        let mut fields = vec![("traceparent", VALID)];
        fields.extend(values.iter().map(|value| ("tracestate", *value)));
        context(&fields).tracestate.map(|state| state.to_str().unwrap().to_owned())
    };
    assert_eq!(state(&["foo=1,bar=2"]).as_deref(), Some("foo=1,bar=2"));
    assert_eq!(state(&["foo=1", "bar=2"]).as_deref(), Some("foo=1,bar=2"), "several fields are one list");
    assert_eq!(state(&["foo@tenant=1 , , 0b*/x_-=~}"]).as_deref(), Some("foo@tenant=1 , , 0b*/x_-=~}"));
    for invalid in ["foo", "foo=", "=1", "Foo=1", "foo=1,foo=2", "foo=1=2", "a@b@c=1", "foo =1", "föö=1", "foo\t=1", ""]
    {
        assert_eq!(state(&[invalid]), None, "{invalid:?}");
    }
    let members = |count: usize| (0..count).map(|at| format!("k{at}=1")).collect::<Vec<_>>().join(",");
    assert_eq!(state(&[&members(32)]), Some(members(32)));
    assert_eq!(state(&[&members(33)]), None);
    let long = |len: usize| "x".repeat(len);
    assert!(state(&[&format!("{}=1", long(256))]).is_some());
    assert_eq!(state(&[&format!("{}=1", long(257))]), None);
    assert_eq!(state(&[&format!("k={}", long(257))]), None);
    // Whole members, and the latest ones, remain of a list that is too long.
    let cut = state(&[&format!("a={0},b={0},c={0}", long(200))]).unwrap();
    assert_eq!(cut, format!("a={0},b={0}", long(200)));
}

#[test]
fn a_baggage_passes_within_its_bounds() {
    let baggage = |values: &[&str]| {
        let fields: Vec<(&str, &str)> = values.iter().map(|value| ("baggage", *value)).collect();
        context(&fields).baggage.map(|baggage| baggage.len())
    };
    assert_eq!(baggage(&["user=alice,tenant=1;x=y"]), Some(23));
    assert_eq!(baggage(&["a=1", "b=2"]), Some(7));
    assert_eq!(baggage(&[&format!("a={}", "x".repeat(8_190))]), Some(8_192));
    assert_eq!(baggage(&[&format!("a={}", "x".repeat(8_191))]), None);
    assert_eq!(baggage(&[&format!("a={}", "x".repeat(8_000)), &format!("b={}", "x".repeat(8_000))]), None);
    assert_eq!(baggage(&[&vec!["a=1"; 181].join(",")]), None);
}
