//! Panics, which no request can cause, and the `Prefer` header.

use super::call::{CallError, catch_panic};
use crate::fault::FaultCode;

#[tokio::test]
async fn r38_a_panic_becomes_an_internal_fault_and_ends_only_its_call() {
    let error = catch_panic::<()>(async { panic!("a defect that this test wants") }).await.unwrap_err();
    let CallError::Fault(fault) = error else { panic!("a panic must not count as a caller that left") };
    assert_eq!((fault.code(), fault.http_status()), (FaultCode::Internal, 500));
    assert!(!fault.message().contains("defect"), "the message to the caller contains the panic's text");
    catch_panic(async { Ok(()) }).await.unwrap();
}

#[test]
fn r79_prefer_is_parsed_as_in_rfc_7240_and_unknown_values_are_ignored() {
    use super::prefer::Preferences;
    use std::time::Duration;
    let parse = |values: &[&str]| {
        let mut headers = http::HeaderMap::new();
        for value in values {
            headers.append("prefer", value.parse().unwrap());
        }
        let preferences = Preferences::from_headers(&headers);
        (preferences.respond_async, preferences.wait.map(|wait| wait.as_secs()))
    };
    assert_eq!(parse(&[]), (false, None));
    assert_eq!(parse(&["respond-async"]), (true, None));
    assert_eq!(parse(&["Respond-Async, wait=10"]), (true, Some(10)));
    assert_eq!(parse(&["wait = \"5\"; x=y", "wait=9, respond-async"]), (true, Some(5)));
    for invalid in
        ["wait=-1", "wait=1.5", "wait=", "wait", "wait=99999999999999999999", "respond-asynchronously", ",,=;"]
    {
        assert_eq!(parse(&[invalid]), (false, None), "{invalid}");
    }
    let both = Preferences { respond_async: true, wait: Some(Duration::from_secs(3)) };
    assert_eq!(both.applied_value().as_deref(), Some("respond-async, wait=3"));
}
