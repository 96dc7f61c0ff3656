//! Lists that come in pages, such as that of `delayd list`.

use delayd_wire::Number;

use super::client::ApiClient;
use super::{Code, output};

/// The entries of a page, and the next cursor.
type PageOf<T> = (Vec<T>, Option<String>);

/// Which pages to list.
#[derive(Debug, clap::Args)]
pub(super) struct Paging {
    /// Entries per page: 1 to 1000, by default 100
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: Option<u16>,
    /// Continue after this cursor, which the previous page printed
    #[arg(long, value_name = "CURSOR")]
    cursor: Option<String>,
    /// List all pages
    #[arg(long)]
    all: bool,
}

impl Paging {
    /// Whether one of the options is given.
    pub(super) fn is_given(&self) -> bool {
        self.limit.is_some() || self.cursor.is_some() || self.all
    }

    /// Prints the page, or all pages from there on. `read` gets the limit and the cursor, and
    /// returns the entries of a page and the next cursor. The client prints JSON itself.
    pub(super) async fn show<T>(
        self,
        client: &ApiClient,
        read: impl AsyncFn(Option<Number>, Option<String>) -> anyhow::Result<PageOf<T>>,
        shown: fn(&[T]) -> String,
    ) -> anyhow::Result<Code> {
        let Self { limit, mut cursor, all } = self;
        let mut is_first = true;
        loop {
            let entries;
            (entries, cursor) = read(limit.map(Number::from), cursor).await?;
            if !client.is_json() && (is_first || !entries.is_empty()) {
                output::line(&shown(&entries))?;
            }
            is_first = false;
            match &cursor {
                Some(_) if all => {}
                Some(next) if !client.is_json() => {
                    let next = output::plain(next, 100);
                    eprintln!("delayd: there may be more; continue with --cursor {next} or --all");
                    return Ok(Code::Done);
                }
                _ => return Ok(Code::Done),
            }
        }
    }
}
