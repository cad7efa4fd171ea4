//! The plot of a run as SVG: CPU per call as bars with a dot for each round, and the latency that a proxy adds. Two
//! panels of simple shapes need no library. The plot is readable on light and on dark pages.

use crate::report::LatencyPercentiles;
use crate::run_record::{RowRecord, RunRecord};
use crate::statistics::median;
use std::fmt::Write as _;

const WIDTH: f64 = 980.0;
/// Where names end, and where each panel begins and ends, as x coordinates.
const NAMES_END: f64 = 265.0;
const CPU_PANEL: (f64, f64) = (275.0, 600.0);
const LATENCY_PANEL: (f64, f64) = (650.0, 960.0);
const ROW_HEIGHT: f64 = 22.0;

const STYLE: &str = "
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600 } .faint { fill: #656d76 } .page { fill: #ffffff } .grid { stroke: #d0d7de }
  .other { fill: #9aa4af } .own { fill: #0969da } .round { fill: #24292f }
  .median { fill: #0969da } .tail { fill: none; stroke: #bc4c00; stroke-width: 1.6 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .faint { fill: #8d96a0 } .page { fill: #0d1117 } .grid { stroke: #30363d }
    .other { fill: #6e7681 } .own { fill: #4493f8 } .round { fill: #e6edf3 }
    .median { fill: #4493f8 } .tail { stroke: #f0883e }
  }
";

/// Draws the two panels, with the proxies' rows in the order of the tables.
pub(crate) fn render_svg(record: &RunRecord) -> String {
    let rows: Vec<&RowRecord> = record.rows.iter().filter(|row| row.rounds.iter().any(|r| r.cpu.is_some())).collect();
    let mut body = String::new();
    let mut y = 64.0;
    let max_cpu = rows.iter().flat_map(|row| cpus(row)).fold(1.0, f64::max);
    let p99s = rows.iter().map(|row| added_latency(row, |latency| latency.p99));
    let max_latency = p99s.filter(|p99| p99.is_finite()).fold(100.0, f64::max);
    let mut protocol = "";
    for row in rows {
        if protocol != row.protocol {
            protocol = &row.protocol;
            draw_text(&mut body, (8.0, y + 12.0, "title", "start"), protocol);
            y += ROW_HEIGHT;
        }
        draw_cpu(&mut body, row, (y, max_cpu));
        draw_latency(&mut body, row, (y, max_latency));
        y += ROW_HEIGHT;
    }
    let mut grid = String::new();
    draw_scales(&mut grid, (y, max_cpu, max_latency));
    let height = y + 40.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\">\n\
         <title>What a call costs through each proxy</title>\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{height:.0}\"/>\n{grid}{body}</svg>\n"
    )
}

fn cpus(row: &RowRecord) -> impl Iterator<Item = f64> {
    row.rounds.iter().filter_map(|round| round.cpu)
}

fn added_latency(row: &RowRecord, percentile: impl Fn(&LatencyPercentiles) -> f64) -> f64 {
    let rounds = row.rounds.iter();
    median(rounds.filter_map(|round| Some(percentile(&round.latency) - percentile(round.direct.as_ref()?))))
}

fn draw_cpu(body: &mut String, row: &RowRecord, (y, max_cpu): (f64, f64)) {
    let class = if row.name.starts_with("Gatepost") { "own" } else { "other" };
    let x_of = |value: f64| CPU_PANEL.0 + value / max_cpu * (CPU_PANEL.1 - CPU_PANEL.0 - 40.0);
    let cpu = median(cpus(row));
    draw_text(body, (NAMES_END, y + 12.0, class_of_name(class), "end"), &row.name);
    let width = x_of(cpu) - CPU_PANEL.0;
    append_element(
        body,
        format_args!("<rect class=\"{class}\" x=\"{}\" y=\"{y}\" width=\"{width:.1}\" height=\"15\"/>", CPU_PANEL.0),
    );
    for cpu in cpus(row) {
        append_element(
            body,
            format_args!("<circle class=\"round\" cx=\"{:.1}\" cy=\"{}\" r=\"1.6\"/>", x_of(cpu), y + 7.5),
        );
    }
    let right = cpus(row).fold(cpu, f64::max);
    draw_text(body, (x_of(right) + 6.0, y + 12.0, "faint", "start"), &format!("{cpu:.1}"));
}

fn class_of_name(class: &str) -> &'static str {
    if class == "own" { "title" } else { "" }
}

/// Draws the median as a filled circle and the 99th percentile as a ring, at the left end if nothing is added.
fn draw_latency(body: &mut String, row: &RowRecord, (y, max_latency): (f64, f64)) {
    let percentiles =
        [("median", added_latency(row, |latency| latency.p50)), ("tail", added_latency(row, |latency| latency.p99))];
    for (class, value) in percentiles {
        if value.is_finite() {
            let x = latency_x(value, max_latency);
            append_element(body, format_args!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{}\" r=\"4\"/>", y + 7.5));
        }
    }
}

/// Returns the x coordinate of a latency. The axis is logarithmic and begins at 10 µs.
fn latency_x(value: f64, max_latency: f64) -> f64 {
    let share = (value.max(10.0) / 10.0).ln() / (max_latency.max(20.0) / 10.0).ln();
    LATENCY_PANEL.0 + share * (LATENCY_PANEL.1 - LATENCY_PANEL.0)
}

fn draw_scales(body: &mut String, (bottom, max_cpu, max_latency): (f64, f64, f64)) {
    draw_text(body, (CPU_PANEL.0, 24.0, "title", "start"), "CPU for a call, µs");
    draw_text(body, (CPU_PANEL.0, 42.0, "faint", "start"), "bar: median; dots: rounds");
    draw_text(body, (LATENCY_PANEL.0, 24.0, "title", "start"), "latency added at half of saturation, µs");
    draw_text(body, (LATENCY_PANEL.0, 42.0, "faint", "start"), "filled: p50; ring: p99; logarithmic");
    let mut tick = |x: f64, label: &str| {
        append_element(body, format_args!("<path class=\"grid\" d=\"M{x:.1} 54V{bottom:.0}\"/>"));
        draw_text(body, (x, bottom + 18.0, "faint", "middle"), label);
    };
    let step = [10.0, 25.0, 50.0, 100.0, 250.0].into_iter().find(|step| max_cpu / step <= 6.0).unwrap_or(1000.0);
    for value in (0..=6).map(|index| f64::from(index) * step).filter(|value| *value <= max_cpu) {
        tick(CPU_PANEL.0 + value / max_cpu * (CPU_PANEL.1 - CPU_PANEL.0 - 40.0), &format!("{value}"));
    }
    let powers = [10.0, 100.0, 1000.0, 10_000.0, 100_000.0];
    for value in powers.into_iter().filter(|value| *value <= max_latency.max(20.0)) {
        tick(latency_x(value, max_latency), &format!("{value}"));
    }
}

fn draw_text(body: &mut String, (x, y, class, anchor): (f64, f64, &str, &str), content: &str) {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    append_element(
        body,
        format_args!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>"),
    );
}

fn append_element(body: &mut String, element: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(body, "{element}");
}

#[cfg(test)]
mod tests;
