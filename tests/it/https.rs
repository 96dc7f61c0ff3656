//! The port over TLS: HTTP/1.1 only, a certificate that is replaced, slow callers, and the
//! command line.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::certificates::{Authority, Pair, Valid, replace};
use crate::program::{self, command, run};
use crate::start_and_stop::refuses;
use crate::{Kept, Program, poll};

pub const LOOPBACK: &[&str] = &["127.0.0.1"];
const ADD: &str = r#"{"topic":"t","delay":"1h","mode":"pull","content":{}}"#;

pub fn sets(pair: &Pair) -> Vec<String> {
    vec![format!("http.tls.cert={:?}", pair.certificate), format!("http.tls.key={:?}", pair.key)]
}

/// A client that trusts these authorities.
pub fn client(authorities: &[&Authority]) -> reqwest::ClientBuilder {
    let certificates = authorities.iter().flat_map(|authority| {
        reqwest::Certificate::from_pem_bundle(&std::fs::read(authority.ca()).unwrap()).unwrap()
    });
    reqwest::Client::builder()
        .tls_certs_only(certificates.collect::<Vec<_>>())
        .timeout(Duration::from_secs(60))
}

pub async fn add(client: &reqwest::Client, delayd: &Program) -> reqwest::Result<reqwest::Version> {
    let url = format!("https://{}/delay/task/add", delayd.address);
    let answer = client.post(url).body(ADD).send().await?.error_for_status()?;
    let version = answer.version();
    let answer: Value = answer.json().await?;
    assert_eq!(answer["dm_error"], 0, "{answer}");
    Ok(version)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_port_speaks_http_1_1_over_tls_and_no_clear_text() {
    let authority = Authority::new();
    let pair = authority.issue("port", LOOPBACK, Valid::Now);
    let delayd = Kept::embedded().start(&sets(&pair)).await;
    assert!(delayd.log().contains(&format!("listens on https://{}", delayd.address)));
    let both = client(&[&authority]).build().unwrap();
    assert_eq!(add(&both, &delayd).await.unwrap(), reqwest::Version::HTTP_11);
    let newer = client(&[&authority]).http2_prior_knowledge().build().unwrap();
    let refused = add(&newer, &delayd).await.unwrap_err();
    assert!(format!("{refused:?}").contains("NoApplicationProtocol"), "{refused:?}");
    let stranger = client(&[&Authority::new()]).build().unwrap();
    assert!(add(&stranger, &delayd).await.is_err());

    let mut plain = TcpStream::connect(delayd.address).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/1.1"), "{answer:?}");
}

/// A certificate of another authority replaces the first under load, and then a pair that does not
/// match. No request fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_replaced_under_load_and_one_with_another_key_is_not_used() {
    let (first, second) = (Authority::new(), Authority::new());
    let pair = first.issue("port", LOOPBACK, Valid::Now);
    let delayd = Arc::new(Kept::embedded().start(&sets(&pair)).await);
    let stop = Arc::new(AtomicBool::new(false));
    let added = Arc::new(AtomicUsize::new(0));
    // Half of the callers keep their connection, the others make one for each call.
    let callers: Vec<_> = [usize::MAX, 0, usize::MAX, 0]
        .into_iter()
        .map(|kept| {
            let caller = client(&[&first, &second]).pool_max_idle_per_host(kept).build().unwrap();
            let (delayd, stop, added) = (delayd.clone(), stop.clone(), added.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    add(&caller, &delayd).await.unwrap();
                    added.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let goes_on = async |what: &str| {
        let until = added.load(Ordering::SeqCst) + 50;
        let reached = poll::until(async || added.load(Ordering::SeqCst) >= until).await;
        assert!(reached, "no more adds after {what}:\n{}", delayd.log());
    };
    goes_on("the start").await;
    second.issue_into(&pair, LOOPBACK, Valid::Now);
    delayd.wait_for_log("The files of http.tls were read again").await;
    goes_on("the renewal").await;
    let only = |authority: &Authority| client(&[authority]).build().unwrap();
    add(&only(&second), &delayd).await.unwrap();
    assert!(add(&only(&first), &delayd).await.is_err(), "the old certificate is still in use");

    let other = first.issue("other", LOOPBACK, Valid::Now);
    replace(&pair.key, &std::fs::read_to_string(&other.key).unwrap());
    delayd.wait_for_log("what was read before stays in force").await;
    let log = delayd.log();
    assert!(log.contains("expected the private key of the certificate in"), "{log}");
    assert!(!log.contains("PRIVATE KEY"), "{log}");
    goes_on("a pair that does not match").await;
    add(&only(&second), &delayd).await.unwrap();
    first.issue_into(&pair, LOOPBACK, Valid::Now);
    delayd.wait_for_logs("The files of http.tls were read again", 2).await;
    add(&only(&first), &delayd).await.unwrap();
    stop.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_checks_the_pair_and_calls_a_service_over_tls() {
    let authority = Authority::new();
    let pair = authority.issue("port", LOOPBACK, Valid::Now);
    let other = authority.issue("other", LOOPBACK, Valid::Now);
    let folder = program::folder();
    let mut mixed = sets(&Pair { key: other.key, ..pair.clone() });
    mixed.push(format!("store.embedded.path={:?}", folder.path().join("delayd.db")));
    refuses(&mixed, 78, &["http.tls: ", "expected the private key of the certificate in"]).await;
    let mut check = command(&mixed);
    check.arg("check");
    let (code, _, error) = run(check).await;
    assert_eq!(code, 78, "{error}");
    assert!(error.contains("expected the private key of the certificate in"), "{error}");
    refuses(&[sets(&pair)[0].clone()], 78, &["http.tls.cert", "goes only with key"]).await;

    let delayd = Kept::embedded().start(&sets(&pair)).await;
    let server = format!("https://{}", delayd.address);
    let says = async |words: &[&str], code: i32, what: &str| {
        let mut command = command(&[]);
        command.args(words);
        let (status, output, error) = run(command).await;
        assert_eq!(status, code, "{words:?}: {output}{error}");
        assert!(format!("{output}{error}").contains(what), "{words:?}: {output}{error}");
    };
    let ca = authority.ca().display().to_string();
    let add = ["add", "t", "--in", "1h", "--mode", "pull", "{}", "--server", &server];
    says(&[&add[..], &["--ca", &ca]].concat(), 0, "").await;
    says(&add, 1, "does not answer").await;
    says(&["healthcheck", "--server", &server, "--ca", &ca], 0, "is alive").await;
    says(&["healthcheck", "--server", &server, "--ca", "/no/file"], 1, "--ca: cannot read").await;
    let mut own = sets(&pair);
    own.push(format!("http.bind={:?}", delayd.address.to_string()));
    let mut healthcheck = command(&own);
    healthcheck.arg("healthcheck");
    let (status, output, error) = run(healthcheck).await;
    assert_eq!((status, output.trim()), (0, &*format!("{server} is alive")), "{error}");
}

/// A certificate may be renewed while the service runs, so an expired one does not end the start.
#[tokio::test(flavor = "multi_thread")]
async fn a_check_and_a_start_warn_of_certificates_that_have_expired() {
    let authority = Authority::new();
    let [port, client] =
        ["port", "client"].map(|stem| authority.issue(stem, LOOPBACK, Valid::Past));
    let mut own = sets(&port);
    own.extend([
        "services.shop.endpoints=[\"https://shop\"]".into(),
        format!("services.shop.tls.client_cert={:?}", client.certificate),
        format!("services.shop.tls.client_key={:?}", client.key),
    ]);
    let warning = |key: &str, pair: &Pair| {
        let path = pair.certificate.display();
        format!(
            "{key}: expected certificates that are valid now, got one that has expired, in {path}"
        )
    };
    let warnings =
        [warning("http.tls.cert", &port), warning("services.shop.tls.client_cert", &client)];
    let check = async |own: &[String]| {
        let mut check = command(own);
        check.args(["check", "--offline"]);
        let (code, output, error) = run(check).await;
        assert_eq!(code, 0, "{output}{error}");
        output
    };
    let output = check(&own).await;
    for warning in &warnings {
        assert!(output.contains(&format!("WARNING        {warning}\n")), "{output}");
    }
    let delayd = Kept::embedded().start(&own).await;
    for warning in &warnings {
        delayd.wait_for_log(warning).await;
    }
    for pair in [&port, &client] {
        authority.issue_into(pair, LOOPBACK, Valid::Now);
    }
    let output = check(&own).await;
    assert!(!output.contains("expired"), "{output}");
}
