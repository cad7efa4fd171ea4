//! What counts as an event.

use super::sent;

#[test]
fn an_event_tells_when_it_was_sent() {
    assert_eq!(sent("data: {\"sent\":17}"), Some(17));
    assert_eq!(sent("1c"), None);
    assert_eq!(sent(""), None);
}
