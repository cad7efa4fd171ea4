//! Statistics and tables: percentiles within a round, medians over the rounds, Markdown tables.

use std::fmt::Write as _;

/// Returns the percentile of the sorted values at `share`, such as 0.99. NaN if there are none.
pub(crate) fn percentile(sorted: &[u64], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 ≤ share ≤ 1")]
    let index = (last as f64 * share).round() as usize;
    sorted.get(index).map_or(f64::NAN, |value| *value as f64)
}

/// Returns the median, which one disturbed round does not move. NaN if there are no values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    let upper = values.get(half).copied().unwrap_or(f64::NAN);
    match values.len() % 2 {
        0 => half.checked_sub(1).and_then(|index| values.get(index)).map_or(upper, |lower| (lower + upper) / 2.0),
        _ => upper,
    }
}

/// Formats a Markdown table with aligned columns. All columns but the first are aligned to the right.
pub(crate) fn markdown_table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        let title = header.get(column).map_or(0, |title| title.chars().count());
        cells.chain([title, 4]).max().unwrap_or(4)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    let mut write_row = |cells: &[&str]| {
        for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            // Writing to a String cannot fail.
            let _ = match column {
                0 => write!(text, "| {cell:<width$} "),
                _ => write!(text, "| {cell:>width$} "),
            };
        }
        text.push_str("|\n");
    };
    write_row(header);
    let rules: Vec<String> = (0..).zip(&widths).map(|(column, width)| rule_cell(column, *width)).collect();
    write_row(&rules.iter().map(String::as_str).collect::<Vec<_>>());
    for row in rows {
        write_row(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    text
}

fn rule_cell(column: usize, width: usize) -> String {
    if column == 0 { "-".repeat(width) } else { format!("{}:", "-".repeat(width - 1)) }
}

#[cfg(test)]
mod tests;
