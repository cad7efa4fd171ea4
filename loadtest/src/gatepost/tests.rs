//! The size of the request body, which loadtest/README.md names.

use super::LANGUAGE;
use crate::request_body::{REQUEST_BODY_SIZE, request_body};

#[test]
fn a_request_body_has_the_documented_size() {
    assert_eq!(request_body(LANGUAGE).len(), REQUEST_BODY_SIZE);
    serde_json::from_str::<serde_json::Value>(&request_body(LANGUAGE)).unwrap();
}
