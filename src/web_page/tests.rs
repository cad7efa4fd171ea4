//! Tests of the parts of pages.

use super::*;
use maud::html;
use std::time::Duration;

fn frame<'a>(title: &'a str, shape: PageShape) -> PageFrame<'a> {
    const NAVIGATION: &[NavItem] = &[NavItem { label: "Agents", path: "/console/agents" }];
    PageFrame {
        title,
        shape,
        home: "/console",
        asset_folder: "/console/assets",
        script: None,
        navigation: NAVIGATION,
        current: "/console/agents",
        session: html! { "nobody" },
    }
}

#[test]
fn text_of_others_is_escaped() {
    let text = "<script>alert('x')</script>\"";
    let page = frame(text, PageShape::Plain).render(&html! { p title=(text) { (text) } });
    assert!(!page.contains("<script>"), "{page}");
    assert!(page.contains("&lt;script&gt;alert('x')&lt;/script&gt;&quot;"), "{page}");
}

#[test]
fn the_current_page_is_marked_for_screen_readers() {
    let page = frame("Agents", PageShape::WithNavigation).render(&html! {});
    assert!(page.contains(r#"<a href="/console/agents" aria-current="page">Agents</a>"#), "{page}");
    assert!(!frame("Agents", PageShape::Narrow).render(&html! {}).contains("<nav"), "a login shows no navigation");
}

#[test]
fn the_path_of_the_style_changes_with_its_content() {
    let [first, second] = ["a{}", "b{}"].map(|content| StaticAsset::new("style", "css", "text/css", content).file_name);
    assert_ne!(first, second);
    assert!(frame("x", PageShape::Plain).render(&html! {}).contains(&stylesheet().file_name));
}

#[test]
fn no_page_permits_scripts_or_styles_inside_it() {
    let (_, policy) = PAGE_HEADERS[0];
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
}

#[test]
fn numbers_have_units_and_at_most_three_digits() {
    let micros = [0, 350, 1_234, 12_340, 123_400, 1_234_000, 45_000_000, 125_000_000, 11_100_000_000, 180_000_000_000];
    let texts = micros.map(|micros| duration_text(Duration::from_micros(micros)));
    let expected =
        ["0 µs", "350 µs", "1.23 ms", "12.3 ms", "123 ms", "1.23 s", "45 s", "2 min 5 s", "3 h 5 min", "2 d 2 h"];
    assert_eq!(texts, expected);
    assert_eq!([0.0, 0.02, 3.21, 1234.5].map(rate_text), ["0/s", "0.02/s", "3.2/s", "1234/s"]);
    assert_eq!([12, 1_500, 300 << 20].map(bytes_text), ["12 B", "1.5 KiB", "300 MiB"]);
    assert_eq!([7, 1_000, 1_234_567].map(count_text), ["7", "1\u{202f}000", "1\u{202f}234\u{202f}567"]);
}

#[test]
fn queries_of_links_are_encoded_and_leave_out_empty_values() {
    assert_eq!(query_string(&[("q", ""), ("code", "")]), "");
    assert_eq!(query_string(&[("q", "a b&c=d\"<"), ("code", ""), ("after", "x")]), "?q=a%20b%26c%3Dd%22%3C&after=x");
}

#[test]
fn a_chart_of_nothing_and_of_odd_numbers_is_drawn() {
    for values in [&[] as &[f64], &[0.0], &[f64::NAN, 1.0, f64::INFINITY], &[1.0, 2.0, 3.0]] {
        let drawing = sparkline(values, "Calls").into_string();
        assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{drawing}");
    }
    assert!(sparkline(&[0.0, 4.0], "Calls").into_string().contains("300.0,2.0"), "the highest value is at the top");
}
