//! The frame of a page: its head, the navigation and the main part.

use super::stylesheet::stylesheet;
use crate::values::visible_text;
use maud::{DOCTYPE, Markup, html};

/// The shape of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageShape {
    /// With the navigation beside the main part.
    WithNavigation,
    /// One column of text.
    Plain,
    /// One narrow column, for a login.
    Narrow,
}

/// A link of the navigation.
#[derive(Clone, Copy, Debug)]
pub struct NavItem {
    /// The text of the link.
    pub label: &'static str,
    /// Its path.
    pub path: &'static str,
}

/// A page without its content.
pub struct PageFrame<'a> {
    /// The title, without the name of the product.
    pub title: &'a str,
    /// The shape.
    pub shape: PageShape,
    /// The path of the first page, to which the name of the product links.
    pub home: &'a str,
    /// The folder of the files that the page loads, without a slash at its end.
    pub asset_folder: &'a str,
    /// The file name of the script, if the page has one.
    pub script: Option<&'a str>,
    /// The links of the navigation.
    pub navigation: &'a [NavItem],
    /// The path of the link that is the current page.
    pub current: &'a str,
    /// What the navigation says of the session.
    pub session: Markup,
}

impl PageFrame<'_> {
    /// Returns the whole page, in which texts of documents and agents are visible as they are.
    pub fn render(&self, content: &Markup) -> String {
        let body_class = match self.shape {
            PageShape::WithNavigation => "",
            PageShape::Plain => "plain",
            PageShape::Narrow => "narrow",
        };
        let main = html! { main #main tabindex="-1" { (content) } };
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) " · Gatepost" }
                    link rel="stylesheet" href={ (self.asset_folder) "/" (stylesheet().file_name) };
                    @if let Some(script) = self.script {
                        script src={ (self.asset_folder) "/" (script) } defer {}
                    }
                }
                body class=(body_class) {
                    a .skip-link href="#main" { "Skip to the content" }
                    @if self.shape == PageShape::WithNavigation {
                        .layout {
                            header .sidebar { (self.render_navigation()) }
                            (main)
                        }
                    } @else {
                        (main)
                    }
                }
            }
        };
        visible_text(&page.into_string()).into_owned()
    }

    fn render_navigation(&self) -> Markup {
        html! {
            a .brand href=(self.home) { "Gatepost" }
            nav aria-label="Pages" {
                ul {
                    @for item in self.navigation {
                        li { a href=(item.path) aria-current=[(item.path == self.current).then_some("page")] { (item.label) } }
                    }
                }
            }
            .session { (self.session) }
        }
    }
}
