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

/// The scales of the two panels, up to the largest value of each.
struct PanelScales {
    max_cpu: f64,
    max_latency: f64,
}

impl PanelScales {
    fn new(rows: &[&RowRecord]) -> Self {
        let p99s = rows.iter().map(|row| added_latency(row, |latency| latency.p99));
        Self {
            max_cpu: rows.iter().flat_map(|row| cpus(row)).fold(1.0, f64::max),
            max_latency: p99s.filter(|p99| p99.is_finite()).fold(100.0, f64::max),
        }
    }

    /// Returns the x coordinate of CPU time. The axis is linear, with room for a label at its end.
    fn cpu_x(&self, cpu: f64) -> f64 {
        CPU_PANEL.0 + cpu / self.max_cpu * (CPU_PANEL.1 - CPU_PANEL.0 - 40.0)
    }

    /// Returns the x coordinate of a latency. The axis is logarithmic and begins at 10 µs.
    fn latency_x(&self, latency: f64) -> f64 {
        let share = (latency.max(10.0) / 10.0).ln() / (self.max_latency.max(20.0) / 10.0).ln();
        LATENCY_PANEL.0 + share * (LATENCY_PANEL.1 - LATENCY_PANEL.0)
    }
}

/// An SVG text: its coordinates, its CSS class, and the part of it that is at the coordinates.
struct SvgText<'a> {
    x: f64,
    y: f64,
    class: &'a str,
    anchor: &'a str,
    content: &'a str,
}

impl SvgText<'_> {
    fn draw(&self, body: &mut String) {
        let Self { x, y, class, anchor, .. } = self;
        let content = self.content.replace('&', "&amp;").replace('<', "&lt;");
        append_element(
            body,
            format_args!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>"),
        );
    }
}

/// Draws the two panels, with the proxies' rows in the order of the tables.
pub(crate) fn render_svg(record: &RunRecord) -> String {
    let rows: Vec<&RowRecord> = record.rows.iter().filter(|row| row.rounds.iter().any(|r| r.cpu.is_some())).collect();
    let mut body = String::new();
    let mut y = 64.0;
    let scales = PanelScales::new(&rows);
    let mut protocol = "";
    for row in rows {
        if protocol != row.protocol {
            protocol = &row.protocol;
            SvgText { x: 8.0, y: y + 12.0, class: "title", anchor: "start", content: protocol }.draw(&mut body);
            y += ROW_HEIGHT;
        }
        draw_cpu(&mut body, row, y, &scales);
        draw_latency(&mut body, row, y, &scales);
        y += ROW_HEIGHT;
    }
    let mut grid = String::new();
    draw_scales(&mut grid, y, &scales);
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

fn draw_cpu(body: &mut String, row: &RowRecord, y: f64, scales: &PanelScales) {
    let class = if row.name.starts_with("Gatepost") { "own" } else { "other" };
    let cpu = median(cpus(row));
    SvgText { x: NAMES_END, y: y + 12.0, class: class_of_name(class), anchor: "end", content: &row.name }.draw(body);
    let width = scales.cpu_x(cpu) - CPU_PANEL.0;
    append_element(
        body,
        format_args!("<rect class=\"{class}\" x=\"{}\" y=\"{y}\" width=\"{width:.1}\" height=\"15\"/>", CPU_PANEL.0),
    );
    for cpu in cpus(row) {
        append_element(
            body,
            format_args!("<circle class=\"round\" cx=\"{:.1}\" cy=\"{}\" r=\"1.6\"/>", scales.cpu_x(cpu), y + 7.5),
        );
    }
    let right = cpus(row).fold(cpu, f64::max);
    let (x, content) = (scales.cpu_x(right) + 6.0, format!("{cpu:.1}"));
    SvgText { x, y: y + 12.0, class: "faint", anchor: "start", content: &content }.draw(body);
}

fn class_of_name(class: &str) -> &'static str {
    if class == "own" { "title" } else { "" }
}

/// Draws the median as a filled circle and the 99th percentile as a ring, at the left end if nothing is added.
fn draw_latency(body: &mut String, row: &RowRecord, y: f64, scales: &PanelScales) {
    let percentiles =
        [("median", added_latency(row, |latency| latency.p50)), ("tail", added_latency(row, |latency| latency.p99))];
    for (class, value) in percentiles {
        if value.is_finite() {
            let x = scales.latency_x(value);
            append_element(body, format_args!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{}\" r=\"4\"/>", y + 7.5));
        }
    }
}

fn draw_scales(body: &mut String, bottom: f64, scales: &PanelScales) {
    let headings = [
        (CPU_PANEL.0, "CPU for a call, µs", "bar: median; dots: rounds"),
        (LATENCY_PANEL.0, "latency added at half of saturation, µs", "filled: p50; ring: p99; logarithmic"),
    ];
    for (x, title, legend) in headings {
        SvgText { x, y: 24.0, class: "title", anchor: "start", content: title }.draw(body);
        SvgText { x, y: 42.0, class: "faint", anchor: "start", content: legend }.draw(body);
    }
    let mut tick = |x: f64, label: &str| {
        append_element(body, format_args!("<path class=\"grid\" d=\"M{x:.1} 54V{bottom:.0}\"/>"));
        SvgText { x, y: bottom + 18.0, class: "faint", anchor: "middle", content: label }.draw(body);
    };
    let step = [10.0, 25.0, 50.0, 100.0, 250.0].into_iter().find(|step| scales.max_cpu / step <= 6.0).unwrap_or(1000.0);
    for value in (0..=6).map(|index| f64::from(index) * step).filter(|value| *value <= scales.max_cpu) {
        tick(scales.cpu_x(value), &format!("{value}"));
    }
    let powers = [10.0, 100.0, 1000.0, 10_000.0, 100_000.0];
    for value in powers.into_iter().filter(|value| *value <= scales.max_latency.max(20.0)) {
        tick(scales.latency_x(value), &format!("{value}"));
    }
}

fn append_element(body: &mut String, element: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(body, "{element}");
}

#[cfg(test)]
mod tests;
