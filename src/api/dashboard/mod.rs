//! `GET /`: the dashboard. It holds no data; its calls carry the reader's token.
//!
//! Its sources are in `src/dashboard`. `npm run build` writes the files that are served here, which
//! are committed, so that the program is built without Node.

use axum::response::Response;
use http::HeaderMap;

use crate::api::static_file::StaticFile;

/// Scripts and styles come from this service only, and scripts cannot turn text into markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

macro_rules! asset {
    ($content_type:literal, $name:literal) => {
        StaticFile::new(
            $content_type,
            POLICY,
            include_bytes!(concat!("../../dashboard/assets/", $name)),
            Some(include_bytes!(concat!("../../dashboard/assets/", $name, ".gz"))),
        )
    };
}

static PAGE: StaticFile = asset!("text/html; charset=utf-8", "index.html");
static SCRIPT: StaticFile = asset!("text/javascript; charset=utf-8", "app.js");
static STYLE: StaticFile = asset!("text/css; charset=utf-8", "app.css");

/// `GET /`
pub(crate) async fn page(headers: HeaderMap) -> Response {
    PAGE.answer(&headers)
}

/// `GET /dashboard/app.js`
pub(crate) async fn script(headers: HeaderMap) -> Response {
    SCRIPT.answer(&headers)
}

/// `GET /dashboard/app.css`
pub(crate) async fn style(headers: HeaderMap) -> Response {
    STYLE.answer(&headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_nothing_from_elsewhere_and_holds_nothing_inline() {
        let page = std::str::from_utf8(PAGE.bytes()).unwrap();
        for banned in ["http:", "https:", "\"/", "<style", " style=", " on"] {
            assert!(!page.contains(banned), "{banned}");
        }
        assert!(page.contains("src=\"dashboard/app.js\""));
        assert!(page.contains("href=\"dashboard/app.css\""));
        let style = std::str::from_utf8(STYLE.bytes()).unwrap();
        assert!(!style.contains("url(") && !style.contains("@import"));
        let script = std::str::from_utf8(SCRIPT.bytes()).unwrap();
        assert!(!script.contains("eval(") && !script.contains("sourceMappingURL"));
    }

    #[test]
    fn the_files_are_small() {
        let sizes = [&PAGE, &SCRIPT, &STYLE].map(|file| file.gzip().len());
        assert!(sizes.iter().sum::<usize>() <= 120 * 1024, "{sizes:?}");
        for file in [&PAGE, &SCRIPT, &STYLE] {
            assert!(file.gzip().starts_with(&[0x1f, 0x8b]));
        }
    }
}
