//! Which lines of a stream are events.

use super::open_streams::parse_sending_time;

#[test]
fn the_sending_time_of_an_event_is_parsed() {
    assert_eq!(parse_sending_time("data: {\"sent\":17}"), Some(17));
    assert_eq!(parse_sending_time("1c"), None);
    assert_eq!(parse_sending_time(""), None);
}
