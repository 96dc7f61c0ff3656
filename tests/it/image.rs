//! The parts of the image build that can be tested without building an image.

use std::path::Path;
use std::process::{Command, Output};

use crate::program::{Program, command, folder, run};

/// A file in the project's folder.
fn text(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The lines below a line of a YAML text, by indentation.
pub fn below(yaml: &str, head: &str) -> String {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let mut lines = yaml.lines().skip_while(|line| *line != head);
    assert!(lines.next().is_some(), "{head} is missing");
    let mut inner = String::new();
    for line in lines.take_while(|line| line.is_empty() || depth(line) > depth(head)) {
        inner.push_str(line);
        inner.push('\n');
    }
    inner
}

fn sh(script: &str, folder: &Path) -> Output {
    Command::new("sh").args(["-ec", script]).current_dir(folder).output().unwrap()
}

fn assert_worked(script: &str, done: &Output) {
    assert!(done.status.success(), "{script}\n{}", String::from_utf8_lossy(&done.stderr));
}

/// The image's first layer must contain every target that the manifest names. A missing one used to
/// stop every build of the image.
#[test]
fn the_first_layer_of_the_image_is_a_complete_package() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let layer = tempfile::tempdir().unwrap();
    let image = std::fs::read_to_string(root.join("Dockerfile")).unwrap();
    let image = image.replace("\\\n", "");
    let (before, _) = image.split_once("COPY src src").unwrap();
    let copied = before
        .lines()
        .filter_map(|line| line.strip_prefix("COPY "))
        .flat_map(|line| line.split(' '));
    for name in copied.filter(|name| root.join(name).is_file()) {
        let to = layer.path().join(name);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(root.join(name), to).unwrap();
    }
    let made = before.lines().find_map(|line| line.strip_prefix("RUN ")).unwrap();
    let (skeleton, _) = made.split_once("&& cargo build").unwrap();
    assert_worked(skeleton, &sh(skeleton, layer.path()));
    // A build starts with this. Crates for other systems may not be downloaded here.
    let fetch = "cargo fetch --offline --locked --target $(rustc -vV | sed -n 's/^host: //p')";
    assert_worked(fetch, &sh(fetch, layer.path()));
}

/// Kubernetes' `runAsNonRoot` refuses an image whose user is a name, since it cannot tell whether
/// that name is root.
#[test]
fn the_image_runs_as_a_numeric_user_and_has_labels() {
    let image = text("Dockerfile");
    let (_, last) = image.rsplit_once("\nFROM ").unwrap();
    assert_eq!(
        last.lines().filter(|line| line.starts_with("USER ")).collect::<Vec<_>>(),
        ["USER 10001:10001"]
    );
    assert!(
        last.contains("install -d -o 10001 -g 10001 -m 0750 /var/lib/delayd"),
        "the folder of the volume must belong to the user of the image"
    );
    for (name, value) in [
        ("title", env!("CARGO_PKG_NAME")),
        ("description", env!("CARGO_PKG_DESCRIPTION")),
        ("version", env!("CARGO_PKG_VERSION")),
        ("licenses", env!("CARGO_PKG_LICENSE")),
    ] {
        let label = format!("org.opencontainers.image.{name}=\"{value}\"");
        assert!(last.contains(&label), "{label}");
    }
}

/// The health check gets the image's environment, but not the `--config` of the service beside it.
#[tokio::test]
async fn the_images_health_check_needs_no_more_than_the_images_environment() {
    let image = text("Dockerfile");
    let place = folder();
    let env = |bind: &str| -> Vec<(String, String)> {
        let line = image.lines().find_map(|line| line.strip_prefix("ENV ")).unwrap();
        let line = line
            .replace("0.0.0.0:7799", bind)
            .replace("/var/lib/delayd", place.path().to_str().unwrap());
        line.split(' ')
            .map(|pair| pair.split_once('=').unwrap())
            .map(|(k, v)| (k.into(), v.into()))
            .collect()
    };
    let token = format!(r#"[{{name="a",token_sha256="{:064}",scopes=["admin"],topics=["*"]}}]"#, 1);
    let mut serve = command(&[format!("http.auth.tokens={token}")]);
    serve.arg("serve").envs(env("0.0.0.0:0"));
    let delayd = Program::launch(serve).await;

    let check = image.lines().find(|line| line.starts_with("HEALTHCHECK ")).unwrap();
    let words: Vec<String> = serde_json::from_str(check.split_once("CMD ").unwrap().1).unwrap();
    assert_eq!(words[0], "delayd");
    let mut healthcheck = command(&[]);
    healthcheck.args(&words[1..]).envs(env(&format!("0.0.0.0:{}", delayd.address.port())));
    let (code, output, error) = run(healthcheck).await;
    assert_eq!(code, 0, "{output}{error}");
}

/// The program in the image used to have 102 MB. A debugger alone reads 83 MB of them.
#[cfg(target_os = "linux")]
#[test]
fn debug_information_is_in_a_separate_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let place = folder();
    let split =
        format!("scripts/split-debug {:?} {:?}", env!("CARGO_BIN_EXE_delayd"), place.path());
    assert_worked(&split, &sh(&split, root));
    // Debuggers find the second file through the first.
    let sections =
        "readelf -SW delayd; readelf -SW delayd.debug >&2; readelf -p .gnu_debuglink delayd";
    let told = sh(sections, place.path());
    assert_worked(sections, &told);
    let (program, debug) =
        (String::from_utf8_lossy(&told.stdout), String::from_utf8_lossy(&told.stderr));
    assert!(!program.contains(".debug_info") && program.contains("delayd.debug"), "{program}");
    assert!(debug.contains(".debug_info"), "{debug}");
    assert_worked("delayd --version", &sh("./delayd --version", place.path()));
}

#[test]
fn the_image_carries_the_program_that_is_shipped() {
    let image = text("Dockerfile");
    assert!(
        image.contains("scripts/dist /dist\n") && image.contains("COPY --from=build /dist/delayd "),
        "{image}"
    );
    assert!(text("scripts/dist").contains("cargo build --profile dist --features otlp --locked\n"));
    let profile = text("Cargo.toml");
    let (_, profile) = profile.split_once("[profile.dist]\n").unwrap();
    assert!(profile.contains("lto = \"fat\"") && profile.contains("debug = \"line-tables-only\""));
}

/// Without the health check, instances met a Redis that did not listen yet or was still loading its
/// log.
#[test]
fn compose_waits_for_redis_and_writes_to_volumes_alone() {
    let compose = text("docker-compose.yml");
    assert!(!compose.contains("\nversion:"), "the field version is obsolete");
    let check = |head: &str, holds: &[&str]| {
        let block = below(&compose, head);
        for part in holds {
            assert!(block.contains(part), "{head} {part}\n{block}");
        }
    };
    check("x-delayd: &delayd", &["  read_only: true\n", "  cap_drop: [ALL]\n"]);
    check(
        "x-instance: &instance",
        &["<<: *delayd\n", "depends_on:\n    redis:\n      condition: service_healthy\n"],
    );
    check(
        "  redis:",
        &[
            "    healthcheck:\n",
            "redis-cli ping",
            "- redis-data:/data\n",
            "\"--appendonly\", \"yes\"",
        ],
    );
    check("  delayd-1:", &["<<: *instance\n", "\"127.0.0.1:7799:7799\""]);
    check("  delayd-2:", &["<<: *instance\n", "\"127.0.0.1:7798:7798\""]);
    check("  nginx:", &["/nginx/delayd.conf:", "\"127.0.0.1:8080:8080\""]);
    check("  receiver:", &["<<: *delayd\n", "command: [\"receive\", "]);
    check("volumes:", &["redis-data:"]);
}

/// Docker ships Compose as `docker compose`. The old spelling ends with "command not found".
#[test]
fn the_pages_spell_compose_as_docker_does() {
    for path in crate::documentation::pages() {
        let text = std::fs::read_to_string(&path).unwrap().replace("docker-compose.yml", "");
        assert!(!text.contains("docker-compose"), "{}", path.display());
    }
    assert!(!text("docker-compose.yml").contains("docker-compose"));
}
