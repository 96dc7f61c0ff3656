//! `delayd token`: makes an access token and its configuration.

use super::{Code, output};
use crate::model::token::{self, Scope, TokenHash};

/// Make a new access token, and the configuration section for it.
///
/// Give the token to its user (--token, or better DELAYD_TOKEN). It is printed only here and stored
/// nowhere; the section below holds only its SHA-256. For a token that you have, `printf %s
/// "$TOKEN" | sha256sum` prints the same hash.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  delayd token --name shop --scope produce --topic 'order.*'
  delayd token --name operator --scope admin,produce,consume
  delayd token --name prometheus --scope view")]
pub(super) struct Args {
    /// The name of the token in the configuration
    #[arg(long, value_name = "NAME", default_value = "my-service", value_parser = plain)]
    name: String,
    /// The scopes: produce, consume, view (reads lists, counts and metrics, no contents), admin
    #[arg(
        long,
        value_name = "SCOPE",
        value_delimiter = ',',
        default_value = "produce,consume",
        value_parser = Scope::ALL.map(Scope::as_str)
    )]
    scope: Vec<String>,
    /// The topics that the token may use; * stands for any characters
    #[arg(
        long,
        value_name = "TOPIC",
        value_delimiter = ',',
        default_value = "*",
        value_parser = plain
    )]
    topic: Vec<String>,
}

/// Parses a text that can stand between quotes.
fn plain(text: &str) -> Result<String, &'static str> {
    let is_plain = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte));
    if is_plain { Ok(text.to_owned()) } else { Err("must be visible characters without quotes") }
}

pub(super) fn run(args: &Args) -> anyhow::Result<Code> {
    output::line(&shown(args, &token::fresh()))?;
    Ok(Code::Done)
}

fn shown(args: &Args, token: &str) -> String {
    let hash = TokenHash::of(token).to_hex();
    let list = |texts: &[String]| {
        texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(", ")
    };
    let (name, scopes, topics) = (&args.name, list(&args.scope), list(&args.topic));
    format!(
        "token  {token}\n\n[[http.auth.tokens]]\nname = {name:?}\ntoken_sha256 = \"{hash}\"\n\
         scopes = [{scopes}]\ntopics = [{topics}]"
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::settings::Settings;

    type Alone = crate::cli::args::Alone<Args>;

    #[test]
    fn what_is_printed_can_be_pasted_into_the_configuration() {
        let args = Alone::parse_from([
            "token",
            "--name",
            "shop",
            "--scope",
            "produce,admin",
            "--topic",
            "order.*",
        ])
        .args;
        let text = shown(&args, "dly_secret");
        insta::assert_snapshot!(text, @r#"
        token  dly_secret

        [[http.auth.tokens]]
        name = "shop"
        token_sha256 = "265c0d5b0ee2e930fe3e35f14ccc7da75b8aa2717db15972da8e5c6e1fea94cb"
        scopes = ["produce", "admin"]
        topics = ["order.*"]
        "#);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tokens.toml");
        std::fs::write(&file, text.split_once('\n').unwrap().1).unwrap();
        let settings = Settings::load(&[file], &[], std::iter::empty()).unwrap();
        assert!(settings.http.auth.tokens[0].token_sha256.0.is(&TokenHash::of("dly_secret")));
    }
}
