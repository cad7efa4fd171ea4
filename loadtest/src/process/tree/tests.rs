//! Whose time is counted.

use super::{Stat, below};
use std::collections::HashMap;

#[test]
fn a_name_with_brackets_and_blanks_moves_no_field() {
    let line = "7 (a) b) S 3 7 7 0 -1 4194560 1 2 3 4 10 20 5 6 20 0 1 0 99";
    assert_eq!(Stat::read(line), Some(Stat { parent: 3, ticks: 41 }));
    assert_eq!(Stat::read("7 (a"), None);
}

#[test]
fn the_whole_tree_is_counted_and_nothing_beside_it() {
    let stat = |process, parent, ticks| (process, Stat { parent, ticks });
    let stats = HashMap::from([stat(1, 0, 1), stat(2, 1, 10), stat(3, 2, 100), stat(4, 0, 1000)]);
    assert_eq!(below(1, &stats), Some(111));
    assert_eq!(below(9, &stats), None);
}

#[test]
fn time_that_this_process_used_is_seen() {
    assert!(super::cpu(std::process::id()).is_ok());
}
