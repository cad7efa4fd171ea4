//! What the pages for people share: the frame of a page, its style, small components, and the header fields that keep a
//! page from loading or sending anything that is not the gateway's own. Knows nothing of agents or requests.

mod components;
mod number_format;
mod page_frame;
mod page_headers;
mod page_query;
mod stylesheet;
mod time_chart;

pub use components::{Badge, Notice, attention_item, facts, notice, pager, select_field, text_field};
pub use number_format::{bytes_text, count_text, duration_text, rate_text, time_ago, time_text};
pub use page_frame::{NavItem, PageFrame, PageShape};
pub use page_headers::{HTML_MEDIA_TYPE, PAGE_HEADERS};
pub use page_query::query_string;
pub use stylesheet::{StaticAsset, stylesheet};
pub use time_chart::{chart, sparkline};

#[cfg(test)]
mod tests;
