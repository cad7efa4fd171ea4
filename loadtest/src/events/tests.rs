//! Which lines of a stream are events.

use super::sent;

#[test]
fn the_sending_time_of_an_event_is_parsed() {
    assert_eq!(sent("data: {\"sent\":17}"), Some(17));
    assert_eq!(sent("1c"), None);
    assert_eq!(sent(""), None);
}
