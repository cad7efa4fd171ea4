//! Lines of values over time, as SVG without style of its own.

use maud::{Markup, html};
use std::fmt::Write as _;

/// Width and height of the drawing; the style scales it.
const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 60.0;

/// Returns a small line of `values`, the oldest first, with `label` for those who do not see it.
pub fn sparkline(values: &[f64], label: &str) -> Markup {
    draw(values, label, "sparkline")
}

/// Returns a wide line of `values`, the oldest first.
pub fn chart(values: &[f64], label: &str) -> Markup {
    draw(values, label, "sparkline chart")
}

fn draw(values: &[f64], label: &str, class: &str) -> Markup {
    let (line, area) = points(values);
    html! {
        svg class=(class) viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(label) {
            polygon points=(area) {}
            polyline points=(line) {}
        }
    }
}

/// Returns the points of the line, and those of the area below it. The scale begins at zero.
fn points(values: &[f64]) -> (String, String) {
    let highest = values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    let scale = if highest > 0.0 { (HEIGHT - 4.0) / highest } else { 0.0 };
    let step = WIDTH / (values.len().max(2) - 1) as f64;
    let mut line = String::new();
    for (index, value) in values.iter().enumerate() {
        let value = if value.is_finite() { *value } else { 0.0 };
        // Writing to a string does not fail.
        let _ = write!(line, "{:.1},{:.1} ", step * index as f64, HEIGHT - 2.0 - value * scale);
    }
    let area = if values.is_empty() { String::new() } else { format!("0,{HEIGHT} {line}{WIDTH},{HEIGHT}") };
    (line, area)
}
