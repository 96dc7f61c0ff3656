//! The examples of the README and of `docs` work when pasted, on both stores. Their links lead to
//! something, and the demo is on time.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::openapi::Document;
use crate::program::{Program, command, folder, run, service};
use crate::receiver::Receiver;
use crate::{Kept, on_both_stores};

on_both_stores!(
    the_examples_of_the_readme_work_when_pasted,
    the_examples_of_the_chinese_readme_work_when_pasted,
    the_first_steps_in_chinese_work_from_top_to_bottom,
    the_examples_of_the_api_page_work_from_top_to_bottom,
    the_examples_for_users_of_other_services_work,
    the_example_of_a_recurring_schedule_works,
);

/// The pages of the documentation.
pub fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = Vec::new();
    for folder in
        ["", "docs", "docs/adr", "docs/from", "docs/operations", "docs/performance", "docs/zh-CN"]
    {
        let files = std::fs::read_dir(root.join(folder)).unwrap().map(|file| file.unwrap().path());
        pages.extend(
            files.filter(|path| path.extension().is_some_and(|extension| extension == "md")),
        );
    }
    pages
}

/// A file in the project's folder.
pub fn page(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

fn readme() -> String {
    page("README.md")
}

/// The shell blocks of a Markdown text.
fn shell_blocks(text: &str) -> Vec<&str> {
    text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// Add, callback and pull; and what `delayd receive` prints is what the page shows.
async fn the_examples_of_the_readme_work_when_pasted(kept: Kept) {
    check_readme(kept, readme(), "prints one line:\n\n```text\n").await;
}

async fn the_examples_of_the_chinese_readme_work_when_pasted(kept: Kept) {
    let readme = page("README.zh-CN.md");
    let blocks = |text: &str| text.split("```").skip(1).step_by(2).map(str::to_owned).collect();
    let (blocks, originals): (Vec<_>, Vec<_>) = (blocks(&readme), blocks(&self::readme()));
    assert_eq!(blocks, originals);
    check_readme(kept, readme, "接收方打印一行：\n\n```text\n").await;
}

async fn check_readme(kept: Kept, readme: String, before_the_line: &str) {
    let mut receiver = Printing::start();
    let service = format!("services.\"message.call\".endpoints=[\"{}\"]", receiver.endpoint);
    let delayd = kept.start(&[service]).await;
    assert_eq!(examples_work(&readme, &delayd).await, 5);
    let shown = readme.split(before_the_line).nth(1).unwrap();
    let shown = shown.split("\n```").next().unwrap().replace('\n', " ");
    let printed = tokio::task::spawn_blocking(move || receiver.line()).await.unwrap();
    assert_eq!(without_digits(&printed), without_digits(&shown), "{printed}");
}

/// The text with one `#` for each run of digits.
fn without_digits(text: &str) -> String {
    let mut parts = text.split(|c: char| c.is_ascii_digit());
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts.filter(|part| !part.is_empty()) {
        rest.push('#');
        rest.push_str(part);
    }
    rest
}

/// A running `delayd receive`. Dropping it kills it.
struct Printing {
    child: Child,
    endpoint: String,
}

impl Printing {
    fn start() -> Self {
        let mut receive = command(&[]);
        receive.args(["receive", "--bind", "127.0.0.1:0"]);
        let mut child = receive.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut first).unwrap();
        let endpoint = first.trim_end().rsplit(' ').next().unwrap().to_owned();
        Self { child, endpoint }
    }

    /// The first line that it prints.
    fn line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Printing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The README promises a lateness that the page of measurements shows for both stores.
#[test]
fn the_lateness_in_the_readme_was_measured() {
    let (readme, measured) = (readme(), page("docs/PERFORMANCE.md"));
    let (_, rest) = readme.split_once("99 % of the callbacks start within ").unwrap();
    let promised: f64 = rest.split_once(" ms").unwrap().0.parse().unwrap();
    assert!(readme.contains("At 3,500 tasks per second on one topic, 99 % "));
    let row = measured.lines().find(|line| line.starts_with("| lateness at 3,500/s ")).unwrap();
    let stores: Vec<&str> = row.split(" | ").filter(|cell| cell.starts_with("p50")).collect();
    assert_eq!(stores.len(), 2, "{row}");
    for store in stores {
        let p99 = store.split_once("p99 ").unwrap().1.split(' ').next().unwrap();
        assert!(p99.parse::<f64>().unwrap() <= promised, "{row}");
        assert!(store.contains("earliest +"), "{row}");
    }
}

/// Runs an example in a shell, in that folder, and returns what it printed.
async fn paste(example: &str, place: &Path, delayd: &Program) -> String {
    let mut shell = Command::new("sh");
    shell
        .current_dir(place)
        .arg("-ec")
        .arg(example.replace("127.0.0.1:7799", &delayd.address.to_string()));
    let (code, output, error) = run(shell).await;
    assert_eq!(code, 0, "{example}{error}");
    output
}

/// The page promises that its examples run from top to bottom.
async fn the_examples_of_the_api_page_work_from_top_to_bottom(kept: Kept) {
    let receiver = Receiver::start().await;
    // As in config/dev.toml, which the page starts with.
    let services = [service("message.call", &receiver), service("other.server", &receiver)];
    let delayd = kept.start(&services).await;
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/API.md")).unwrap();
    let pasted = examples_work(&page, &delayd).await;
    assert!(pasted > 20, "{pasted}");
    receiver.wait_for(2).await;
}

async fn the_first_steps_in_chinese_work_from_top_to_bottom(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    assert_eq!(examples_work(&page("docs/zh-CN/first-steps.md"), &delayd).await, 10);
}

async fn the_examples_for_users_of_other_services_work(kept: Kept) {
    let receiver = Receiver::start().await;
    let services = [service("message.call", &receiver), service("other.server", &receiver)];
    let delayd = kept.start(&services).await;
    let mut pasted = 0;
    for page in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/from")).unwrap() {
        let page = std::fs::read_to_string(page.unwrap().path()).unwrap();
        pasted += examples_work(&page, &delayd).await;
    }
    assert!(pasted > 10, "{pasted}");
}

async fn the_example_of_a_recurring_schedule_works(kept: Kept) {
    let receiver = Receiver::start().await;
    let delayd = kept.start(&[service("message.call", &receiver)]).await;
    assert_eq!(examples_work(&page("docs/SCHEDULES.md"), &delayd).await, 1);
}

/// Runs the shell blocks of a page that call delayd, from top to bottom. Each answer must have the
/// fields and the content of the answer shown below the block, and match the OpenAPI document.
/// Returns the number of blocks.
async fn examples_work(page: &str, delayd: &Program) -> usize {
    let blocks: Vec<(&str, &str)> =
        page.split("```").skip(1).step_by(2).map(|block| block.split_once('\n').unwrap()).collect();
    let document = Document::of(delayd).await;
    let place = folder();
    let mut pasted = 0;
    for (i, (kind, example)) in blocks
        .iter()
        .enumerate()
        .filter(|(_, (kind, example))| kind.starts_with("sh") && example.contains("/delay/"))
    {
        let answer: serde_json::Value =
            serde_json::from_str(&paste(example, place.path(), delayd).await).unwrap();
        let shown: serde_json::Value = serde_json::from_str(blocks[i + 1].1).unwrap();
        assert_eq!(answer["dm_error"], shown["dm_error"], "{example}{answer}");
        assert_eq!(*kind == "sh error", answer["dm_error"] != 0, "{example}{answer}");
        assert_eq!(shape(&answer), shape(&shown), "{example}{answer}");
        for field in ["error_msg", "content"] {
            assert_eq!(answer[field], shown[field], "{example}");
        }
        let path = example.rsplit_once("/delay/").unwrap().1.split(' ').next().unwrap();
        let status = if *kind == "sh error" { 400 } else { 200 };
        document.check(&format!("/delay/{path}"), status, &answer);
        pasted += 1;
    }
    pasted
}

/// The names of an answer's fields, at every depth.
fn shape(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Object(fields) => {
            fields.iter().map(|(name, value)| format!("{name}{{{}}}", shape(value))).collect()
        }
        serde_json::Value::Array(values) => values.iter().map(shape).collect(),
        _ => String::new(),
    }
}

#[test]
fn the_commands_of_the_readme_are_there() {
    let readme = readme();
    for needed in ["cargo run -- demo\n", "scripts/test\n", "docker compose up --build\n"] {
        assert!(shell_blocks(&readme).iter().any(|block| block.contains(needed)), "{needed}");
    }
    for file in [
        "scripts/test",
        "docker-compose.yml",
        "config/dev.toml",
        "docs/ARCHITECTURE.md",
        "docs/LIFECYCLE.md",
    ] {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(file).exists(), "{file}");
    }
}

/// A table of CONTRIBUTING.md that names a removed test or script would mislead newcomers.
#[test]
fn the_commands_for_contributors_name_tests_and_scripts_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (parts, page) = (page(".config/nextest.toml"), page("CONTRIBUTING.md"));
    let commands: Vec<&str> = page.split('`').skip(1).step_by(2).collect();
    let mut checked = 0;
    for command in commands.into_iter().chain(shell_blocks(&page).into_iter().flat_map(str::lines))
    {
        let words: Vec<&str> = command.split_whitespace().collect();
        if words
            .first()
            .is_some_and(|word| word.starts_with("scripts/") || word.starts_with(".ci/"))
        {
            assert!(root.join(words[0]).is_file(), "{command}");
            if let ["scripts/test", part, ..] = words[..]
                && part != "PART"
            {
                assert!(parts.contains(&format!("[profile.{part}]")), "{command}");
            }
            checked += 1;
        }
        let Some(at) = words.iter().position(|word| *word == "--test") else { continue };
        let (test, filter) =
            (words[at + 1], words.get(at + 2).map(|word| word.trim_end_matches("::")));
        let exists = |path: String| root.join("tests").join(path).is_file();
        assert!(exists(format!("{test}.rs")) || exists(format!("{test}/main.rs")), "{command}");
        if let Some(module) = filter.filter(|module| !["embedded", "redis"].contains(module)) {
            assert!(exists(format!("{test}/{module}.rs")), "{command}");
        }
        checked += 1;
    }
    assert!(checked > 10, "{checked}");
}

/// Otherwise no script would run it.
#[test]
fn every_test_target_belongs_to_a_script() {
    let script = page("scripts/test") + &page("scripts/nightly");
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let is_target = path.extension().is_some_and(|extension| extension == "rs")
            || path.join("main.rs").is_file();
        assert!(
            !is_target || script.contains(&format!("--test {name}")),
            "neither scripts/test nor scripts/nightly has {name}"
        );
    }
}

#[test]
fn every_module_of_nightly_belongs_to_a_part() {
    let (modules, script) = (page("tests/it/nightly/mod.rs"), page("scripts/nightly"));
    let modules = modules.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';'));
    for module in modules {
        assert!(script.contains(module), "scripts/nightly: no part has {module}");
    }
}

/// The manifest, the README and both texts name the same licences.
#[test]
fn the_licence_is_named_and_both_texts_are_there() {
    assert!(page("Cargo.toml").contains("\nlicense = \"MIT OR Apache-2.0\"\n"));
    assert!(page("LICENSE-MIT").starts_with("MIT License\n\nCopyright (c) "));
    let apache = page("LICENSE-APACHE");
    assert!(
        apache.contains("Version 2.0, January 2004")
            && apache.contains("END OF TERMS AND CONDITIONS")
    );
    for name in ["README.md", "CONTRIBUTING.md"] {
        assert!(
            page(name).contains("(LICENSE-MIT)") && page(name).contains("(LICENSE-APACHE)"),
            "{name}"
        );
    }
}

/// These pages are also read on the platform that hosts the repository, whose address the project
/// does not know.
#[test]
fn the_pages_for_contributors_have_relative_links_only() {
    for name in ["CONTRIBUTING.md", "SECURITY.md"] {
        assert!(!page(name).contains("://"), "{name}");
    }
}

#[tokio::test]
async fn the_development_configuration_is_valid_and_names_the_readmes_service() {
    let dev = concat!(env!("CARGO_MANIFEST_DIR"), "/config/dev.toml");
    let settings =
        delayd::settings::Settings::load(&[dev.into()], &[], std::iter::empty()).unwrap();
    assert!(
        settings.services.contains_key("message.call")
            && settings.services.contains_key("other.server")
    );
    let compose = concat!(env!("CARGO_MANIFEST_DIR"), "/config/compose.toml");
    delayd::settings::Settings::load(&[compose.into()], &[], std::iter::empty()).unwrap();
}

#[tokio::test]
async fn the_demo_shows_tasks_arriving_on_time_and_exits_0() {
    let mut demo = command(&[]);
    demo.arg("demo").args(["--tasks", "3"]);
    let (code, output, error) = run(demo).await;
    assert_eq!(code, 0, "{output}{error}");
    assert!(output.contains("none early"), "{output}");
}

/// A renamed page or heading must not leave links behind.
#[test]
fn the_links_between_the_pages_are_valid() {
    for page in &pages() {
        let text = std::fs::read_to_string(page).unwrap();
        for link in prose(&text).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link} leads nowhere", page.display());
            if !heading.is_empty() {
                let target = std::fs::read_to_string(target).unwrap();
                assert!(
                    anchors(&target).any(|anchor| anchor == heading),
                    "{}: {link} names a heading that is not there",
                    page.display()
                );
            }
        }
    }
}

/// A Markdown text without its code blocks.
fn prose(text: &str) -> String {
    text.split("\n```").step_by(2).collect()
}

/// The anchors of a text's headings, as links name them.
pub fn anchors(text: &str) -> impl Iterator<Item = String> {
    let headings: Vec<String> =
        prose(text).lines().filter(|line| line.starts_with('#')).map(str::to_owned).collect();
    headings.into_iter().map(|heading| {
        let kept = heading
            .trim_start_matches(['#', ' '])
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    })
}
