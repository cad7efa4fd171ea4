//! What no request can bring about: a defect of the gateway's own.

use super::{Stop, serve::caught};
use crate::fault::Code;

#[tokio::test]
async fn r38_a_panic_ends_its_call_as_a_failure_of_the_gateway_and_nothing_else() {
    let stop = caught::<()>(async { panic!("a defect, as this test wants it") }).await.unwrap_err();
    let Stop::Fault(fault) = stop else { panic!("a panic is no caller that left") };
    assert_eq!((fault.code(), fault.http_status()), (Code::Internal, 500));
    assert!(!fault.message().contains("defect"), "the caller reads what the panic said");
    caught(async { Ok(()) }).await.unwrap();
}

#[test]
fn r79_preferences_are_read_as_rfc_7240_has_them_and_what_is_not_understood_is_left_out() {
    use super::prefer::Prefer;
    use std::time::Duration;
    let read = |values: &[&str]| {
        let mut headers = http::HeaderMap::new();
        for value in values {
            headers.append("prefer", value.parse().unwrap());
        }
        let prefer = Prefer::read(&headers);
        (prefer.later, prefer.wait.map(|wait| wait.as_secs()))
    };
    assert_eq!(read(&[]), (false, None));
    assert_eq!(read(&["respond-async"]), (true, None));
    assert_eq!(read(&["Respond-Async, wait=10"]), (true, Some(10)));
    assert_eq!(read(&["wait = \"5\"; x=y", "wait=9, respond-async"]), (true, Some(5)));
    for odd in ["wait=-1", "wait=1.5", "wait=", "wait", "wait=99999999999999999999", "respond-asynchronously", ",,=;"] {
        assert_eq!(read(&[odd]), (false, None), "{odd}");
    }
    let both = Prefer { later: true, wait: Some(Duration::from_secs(3)) };
    assert_eq!(both.applied().as_deref(), Some("respond-async, wait=3"));
}
