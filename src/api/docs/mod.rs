//! `GET /docs`: a page that shows `/openapi.json` and sends calls. It holds no data; its calls
//! carry the reader's token.
//!
//! It consists of four files of our own and loads nothing else: no framework, no font, no inline
//! script or style. Its content security policy would block them.

use axum::response::Response;
use http::HeaderMap;

use crate::api::static_file::StaticFile;

const POLICY: &str =
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

macro_rules! asset {
    ($content_type:literal, $name:literal) => {
        StaticFile::new($content_type, POLICY, include_bytes!($name), None)
    };
}

static PAGE: StaticFile = asset!("text/html; charset=utf-8", "index.html");
static SCRIPT: StaticFile = asset!("text/javascript; charset=utf-8", "explorer.js");
static STYLE: StaticFile = asset!("text/css; charset=utf-8", "explorer.css");
static ICON: StaticFile = asset!("image/svg+xml", "icon.svg");

/// `GET /docs`
pub(crate) async fn page(headers: HeaderMap) -> Response {
    PAGE.answer(&headers)
}

/// `GET /docs/explorer.js`
pub(crate) async fn script(headers: HeaderMap) -> Response {
    SCRIPT.answer(&headers)
}

/// `GET /docs/explorer.css`
pub(crate) async fn style(headers: HeaderMap) -> Response {
    STYLE.answer(&headers)
}

/// `GET /docs/icon.svg`
pub(crate) async fn icon(headers: HeaderMap) -> Response {
    ICON.answer(&headers)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_names_nothing_from_elsewhere_and_holds_nothing_inline() {
        let page = include_str!("index.html");
        for text in [page, include_str!("explorer.js"), include_str!("explorer.css")] {
            for banned in ["http://", "https://", "url(//", "@import", "innerHTML", "eval("] {
                assert!(!text.contains(banned), "{banned}");
            }
        }
        // The only URL in the icon is its XML namespace.
        assert_eq!(include_str!("icon.svg").matches("http").count(), 1);
        assert!(
            page.contains("src=\"/docs/explorer.js\"")
                && page.contains("href=\"/docs/explorer.css\"")
        );
        // Without this rule, `nav a { display: block }` would show what the filter hides.
        assert!(include_str!("explorer.css").contains("[hidden] { display: none !important; }"));
        assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains(" on"));
    }
}
