//! The plot is well-formed.

use super::render_svg;
use crate::run_record::tests::record;

/// Whether every element that is opened is closed, in nested order.
fn is_well_formed(text: &str) -> bool {
    let mut open = Vec::new();
    for tag in text.split('<').skip(1) {
        let Some((tag, _)) = tag.split_once('>') else { return false };
        let name = tag.split([' ', '/']).find(|part| !part.is_empty()).unwrap_or_default();
        if tag.starts_with('/') {
            if open.pop() != Some(name) {
                return false;
            }
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    open.is_empty() && !text.contains("NaN") && !text.contains("inf")
}

#[test]
fn the_plot_escapes_the_names_of_rows() {
    let text = render_svg(&record());
    assert!(is_well_formed(&text), "{text}");
    assert!(text.contains("Gatepost &lt; &amp; 1"));
    assert!(!is_well_formed("<svg><text></svg>"));
}

#[test]
fn rows_without_cpu_have_no_bar() {
    assert_eq!(render_svg(&record()).matches("class=\"own\"").count(), 1);
    assert!(!render_svg(&record()).contains(">direct<"));
}

#[test]
fn a_run_without_rows_has_a_well_formed_plot() {
    let mut record = record();
    record.rows.clear();
    assert!(is_well_formed(&render_svg(&record)));
}
