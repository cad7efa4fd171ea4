//! Which processes' CPU time is counted.

use super::{ProcessStat, ticks_of_tree};
use std::collections::HashMap;

#[test]
fn parentheses_and_spaces_in_a_program_name_are_part_of_the_name() {
    let line = "7 (a) b) S 3 7 7 0 -1 4194560 1 2 3 4 10 20 5 6 20 0 1 0 99";
    assert_eq!(ProcessStat::parse(line), Some(ProcessStat { parent: 3, ticks: 41 }));
    assert_eq!(ProcessStat::parse("7 (a"), None);
}

#[test]
fn all_descendants_are_counted_and_no_other_process() {
    let stat = |process, parent, ticks| (process, ProcessStat { parent, ticks });
    let stats = HashMap::from([stat(1, 0, 1), stat(2, 1, 10), stat(3, 2, 100), stat(4, 0, 1000)]);
    assert_eq!(ticks_of_tree(1, &stats), Some(111));
    assert_eq!(ticks_of_tree(9, &stats), None);
}

#[test]
fn the_cpu_time_of_this_process_can_be_read() {
    assert!(super::cpu_time_of_tree(std::process::id()).is_ok());
}
