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

/// `GET /docs`
pub(crate) async fn page() -> Response {
    asset("text/html; charset=utf-8", include_str!("index.html"))
}

/// `GET /docs/explorer.js`
pub(crate) async fn script() -> Response {
    asset("text/javascript; charset=utf-8", include_str!("explorer.js"))
}

/// `GET /docs/explorer.css`
pub(crate) async fn style() -> Response {
    asset("text/css; charset=utf-8", include_str!("explorer.css"))
}

/// `GET /docs/icon.svg`
pub(crate) async fn icon() -> Response {
    asset("image/svg+xml", include_str!("icon.svg"))
}

fn asset(content_type: &'static str, text: &'static str) -> Response {
    let file = StaticFile { content_type, policy: POLICY, bytes: text.as_bytes(), gzip: None };
    file.answer(&HeaderMap::new())
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
