//! The size that the README speaks of.

use super::LANGUAGE;
use crate::question::{QUESTION, question};

#[test]
fn a_question_has_the_size_it_is_said_to_have() {
    assert_eq!(question(LANGUAGE).len(), QUESTION);
    serde_json::from_str::<serde_json::Value>(&question(LANGUAGE)).unwrap();
}
