//! Browsers that reach delayd through a proxy: a real nginx that rewrites `Host`.

use serde_json::Value;

use crate::Kept;
use crate::nginx::Nginx;
use crate::program::{Program, client, command, folder, run};

/// What a browser gets for a call by a page of this origin: status and message.
async fn posted_by(nginx: &Nginx, origin: &str) -> (u16, String) {
    let post = client().post(nginx.url("/delay/topic/list"));
    let answer = post.header("origin", origin).body("{}").send().await.unwrap();
    let status = answer.status().as_u16();
    let body: Value = answer.json().await.unwrap();
    (status, body["error_msg"].as_str().unwrap().to_owned())
}

/// Such a page got 403 however delayd was configured.
#[tokio::test]
async fn a_public_origin_may_call_behind_a_proxy_that_rewrites_host() {
    let place = folder();
    let file = place.path().join("delayd.toml");
    let configure = |text: &str| std::fs::write(&file, text).unwrap();
    configure("[http]\npublic_origins = []\n");
    let kept = Kept::embedded();
    let delayd = Program::start_from(&kept.store, &file).await;
    let nginx = Nginx::before(&delayd, "").await;
    let (ours, other) = (nginx.url(""), "https://evil.example");
    let refused = async |origin: &str| {
        let (status, message) = posted_by(&nginx, origin).await;
        assert_eq!((status, message.split(':').next().unwrap()), (403, "Origin"), "{origin}");
    };
    refused(&ours).await;
    refused(other).await;

    configure(&format!("[http]\npublic_origins = [\"https://a.example\", \"{ours}\"]\n"));
    delayd.wait_for_log("changed: http.public_origins").await;
    assert_eq!(posted_by(&nginx, &ours).await.0, 200);
    assert_eq!(posted_by(&nginx, "https://a.example:443").await.0, 200);
    refused(other).await;
    refused("http://a.example").await;
    refused("null").await;

    configure("[http]\npublic_origins = []\n# none any more\n");
    delayd.wait_for_logs("changed: http.public_origins", 2).await;
    refused(&ours).await;
}

#[tokio::test]
async fn what_is_no_origin_is_refused_with_an_example() {
    let mut check = command(&["http.public_origins=['https://delay.example/']".into()]);
    check.arg("check");
    let (code, output, error) = run(check).await;
    assert!(code == 78 || code == 1, "{code}: {output}{error}");
    let said = format!("{output}{error}");
    assert!(
        said.contains("http.public_origins[0]") && said.contains("without a path, such as"),
        "{said}"
    );
}
