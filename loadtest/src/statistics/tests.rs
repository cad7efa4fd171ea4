//! Percentiles, medians and tables.

use super::{markdown_table, median, percentile};

#[test]
fn a_percentile_is_one_of_the_values() {
    let values: Vec<u64> = (0..=100).collect();
    assert_eq!(percentile(&values, 0.5), 50.0);
    assert_eq!(percentile(&values, 0.99), 99.0);
    assert!(percentile(&[], 0.5).is_nan());
}

#[test]
fn a_median_ignores_one_outlier() {
    assert_eq!(median([3.0, 1.0, 900.0]), 3.0);
    assert_eq!(median([1.0, 2.0, 3.0, 900.0]), 2.5);
    assert!(median([]).is_nan());
}

#[test]
fn the_columns_of_a_table_are_aligned() {
    let rows = [vec!["direct".to_owned(), "1".to_owned()]];
    let text = markdown_table(&["row", "calls"], &rows);
    assert_eq!(text, "| row    | calls |\n| ------ | ----: |\n| direct |     1 |\n");
}
