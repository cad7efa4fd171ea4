//! Panics, which no request can cause, and the `Prefer` header.

use super::{CallError, request_handler::catch_panic};
use crate::fault::FaultCode;

#[tokio::test]
async fn r38_a_panic_becomes_an_internal_fault_and_ends_only_its_call() {
    let stop = catch_panic::<()>(async { panic!("a defect that this test wants") }).await.unwrap_err();
    let CallError::Fault(fault) = stop else { panic!("a panic must not count as a caller that left") };
    assert_eq!((fault.code(), fault.http_status()), (FaultCode::Internal, 500));
    assert!(!fault.message().contains("defect"), "the message to the caller contains the panic's text");
    catch_panic(async { Ok(()) }).await.unwrap();
}

#[test]
fn r79_prefer_is_parsed_as_in_rfc_7240_and_unknown_values_are_ignored() {
    use super::prefer::Preferences;
    use std::time::Duration;
    let read = |values: &[&str]| {
        let mut headers = http::HeaderMap::new();
        for value in values {
            headers.append("prefer", value.parse().unwrap());
        }
        let prefer = Preferences::from_headers(&headers);
        (prefer.respond_async, prefer.wait.map(|wait| wait.as_secs()))
    };
    assert_eq!(read(&[]), (false, None));
    assert_eq!(read(&["respond-async"]), (true, None));
    assert_eq!(read(&["Respond-Async, wait=10"]), (true, Some(10)));
    assert_eq!(read(&["wait = \"5\"; x=y", "wait=9, respond-async"]), (true, Some(5)));
    for odd in ["wait=-1", "wait=1.5", "wait=", "wait", "wait=99999999999999999999", "respond-asynchronously", ",,=;"] {
        assert_eq!(read(&[odd]), (false, None), "{odd}");
    }
    let both = Preferences { respond_async: true, wait: Some(Duration::from_secs(3)) };
    assert_eq!(both.applied_value().as_deref(), Some("respond-async, wait=3"));
}
