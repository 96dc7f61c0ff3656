//! Tests of the tokens of a service: what a refused call does, and how often an endpoint is asked.

use std::sync::atomic::AtomicUsize;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::callback::encoding::tests::gzip;
use crate::callback::{Client, Params, SecretText};
use crate::model::clock::Clock;

fn oauth(token_url: &str) -> OAuth {
    OAuth::new(OAuthParams {
        token_url: token_url.parse().unwrap(),
        client_id: "me".into(),
        client_secret: SecretText::literal("hush"),
        scope: Some("a b".into()),
    })
    .unwrap()
}

fn grant(oauth: &OAuth, text: &str, lifetime: u64) -> Arc<AccessToken> {
    let header = HeaderValue::try_from(format!("Bearer {text}")).unwrap();
    let lifetime = Duration::from_secs(lifetime);
    oauth.granted(TokenGrant { header, token: text.into(), lifetime }, Instant::now());
    oauth.token().unwrap()
}

/// What a refused call does, as a word.
fn word(next: &AfterRefusal) -> &'static str {
    match next {
        AfterRefusal::Repeat(_) => "repeat",
        AfterRefusal::Count => "count",
        AfterRefusal::GiveBack => "give back",
    }
}

/// What a call does that is refused while the keeper gets this result.
async fn refused(oauth: &OAuth, token: &AccessToken, meanwhile: impl FnOnce()) -> &'static str {
    let mut call = std::pin::pin!(oauth.refused(token));
    // The call is not ready until the keeper has asked.
    tokio::select! {
        biased;
        next = &mut call => return word(&next),
        () = oauth.refused.notified() => {}
    }
    assert!(oauth.wants_another());
    meanwhile();
    word(&call.await)
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_is_repeated_counted_or_given_back() {
    let oauth = oauth("http://127.0.0.1:1/");
    assert!(oauth.token().is_none() && oauth.no_token().is_some());
    let first = grant(&oauth, "one", 60);
    assert!(oauth.no_token().is_none());
    // A new token came.
    let next = refused(&oauth, &first, || drop(grant(&oauth, "two", 60))).await;
    assert_eq!(next, "repeat");
    // Another call asked before, and no further request is needed.
    assert_eq!(word(&oauth.refused(&first).await), "repeat");
    assert!(!oauth.wants_another());
    // The endpoint fails, but another call was taken meanwhile.
    let second = oauth.token().unwrap();
    let fails = || {
        second.was_taken();
        oauth.failed("down");
    };
    assert_eq!(refused(&oauth, &second, fails).await, "count");
    assert!(oauth.no_token().is_none());
    assert_eq!(oauth.failure().as_deref(), Some("down"));
    // While the endpoint fails, a refusal counts once, and then the token is given up.
    assert_eq!(word(&oauth.refused(&second).await), "count");
    assert_eq!(word(&oauth.refused(&second).await), "give back");
    assert_eq!(oauth.no_token().as_deref(), Some("down"));
    // Without another call that was taken, the token is given up.
    let third = grant(&oauth, "three", 60);
    assert_eq!(oauth.failure(), None);
    assert_eq!(refused(&oauth, &third, || oauth.failed("away")).await, "give back");
    assert_eq!(oauth.no_token().as_deref(), Some("away"));
    assert_eq!(word(&oauth.refused(&third).await), "give back");
}

/// The token endpoint is slower than the calls. A task that is refused with every token was given
/// back each time, and called for ever.
#[tokio::test(start_paused = true)]
async fn a_refused_replacement_counts_although_no_other_token_came_in_time() {
    let oauth = oauth("http://127.0.0.1:1/");
    let refused = async |token: &AccessToken| {
        let deadline = Instant::now() + Duration::from_secs(15);
        word(&oauth.refused_until(token, deadline).await)
    };
    let first = grant(&oauth, "one", 3_600);
    assert_eq!(refused(&first).await, "give back");
    assert_eq!(refused(&first).await, "give back", "it replaced no other");
    let second = grant(&oauth, "two", 3_600);
    assert_eq!(refused(&second).await, "count");
    let third = grant(&oauth, "three", 3_600);
    third.was_taken();
    assert_eq!(refused(&third).await, "count", "it replaced a refused one");
    // A token that was renewed in time replaces none that was refused.
    grant(&oauth, "four", 3_600);
    let renewed = grant(&oauth, "five", 3_600);
    assert_eq!(refused(&renewed).await, "give back");
    // Another token comes in time.
    let deadline = Instant::now() + Duration::from_secs(15);
    let (next, _) = tokio::join!(oauth.refused_until(&renewed, deadline), async {
        grant(&oauth, "six", 3_600)
    });
    assert_eq!(word(&next), "repeat");
}

#[tokio::test(start_paused = true)]
async fn refusals_ask_for_a_few_tokens_at_once_and_then_for_one_a_second() {
    let oauth = oauth("http://127.0.0.1:1/");
    let mut token = grant(&oauth, "0", 3_600);
    for number in 1..=5 {
        let next = refused(&oauth, &token, || drop(grant(&oauth, &number.to_string(), 3_600)));
        assert_eq!(next.await, "repeat", "{number}");
        token = oauth.token().unwrap();
    }
    assert_eq!(word(&oauth.refused(&token).await), "count");
    tokio::time::advance(Duration::from_secs(1)).await;
    let next = refused(&oauth, &token, || drop(grant(&oauth, "6", 3_600))).await;
    assert_eq!(next, "repeat");
    assert_eq!(word(&oauth.refused(&oauth.token().unwrap()).await), "count");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_not_used_after_it_expired() {
    let oauth = oauth("http://127.0.0.1:1/");
    grant(&oauth, "one", 5);
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(oauth.token().is_none());
    oauth.drop_expired();
    assert_eq!(oauth.no_token().as_deref(), Some("it has expired"));
}

#[tokio::test(start_paused = true)]
async fn the_last_secrets_and_tokens_are_known_and_not_shown() {
    let oauth = oauth("http://127.0.0.1:1/");
    for text in ["token-one", "token-two", "token-one"] {
        grant(&oauth, text, 5);
    }
    let shown = oauth.known_secrets().redact("token-one token-two").into_owned();
    assert_eq!(shown, "*** ***");
    assert!(!format!("{oauth:?}").contains("hush"));
}

/// The end of a request of a token.
const FORM: &str = "\r\n\r\ngrant_type=client_credentials&scope=a+b";

/// A token endpoint that numbers its tokens, each good for an hour.
async fn endpoint(asked: Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/token", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = String::new();
            while !request.ends_with(FORM) {
                let mut buffer = [0; 1024];
                let length = stream.read(&mut buffer).await.unwrap();
                assert!(length > 0, "{request}");
                request.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
            }
            for line in [
                "POST /token HTTP/1.1",
                "authorization: Basic bWU6aHVzaA==",
                "content-type: application/x-www-form-urlencoded",
                "accept-encoding: identity",
            ] {
                assert!(request.contains(&format!("{line}\r\n")), "{request}");
            }
            let number = asked.fetch_add(1, Ordering::SeqCst) + 1;
            let token = format!("token-{number}");
            let body = json!({"access_token": token, "token_type": "Bearer", "expires_in": 3600});
            // A gateway may compress whatever the request asks for.
            let body = gzip(body.to_string().as_bytes());
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
        }
    });
    url
}

#[tokio::test]
async fn sixty_four_refused_calls_cause_one_request() {
    crate::install_crypto();
    let asked = Arc::new(AtomicUsize::new(0));
    let oauth = Arc::new(oauth(&endpoint(asked.clone()).await));
    let connect_timeout = Duration::from_secs(2);
    let params = Params { connect_timeout, final_statuses: Vec::new(), clock: Clock::system() };
    let mut changes = oauth.changes();
    let keeper = tokio::spawn(keep(oauth.clone(), Client::new(params).unwrap(), |_| {}));
    while oauth.no_token().is_some() {
        changes.next().await;
    }
    let token = oauth.token().unwrap();
    assert_eq!(token.header, "Bearer token-1");
    let calls: Vec<_> = (0..64)
        .map(|_| {
            let (oauth, token) = (oauth.clone(), token.clone());
            tokio::spawn(async move {
                match oauth.refused(&token).await {
                    AfterRefusal::Repeat(other) => other.header.clone(),
                    other => panic!("{}", word(&other)),
                }
            })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), "Bearer token-2");
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    let secrets = oauth.known_secrets();
    for known in ["hush", "bWU6aHVzaA==", "token-1", "token-2"] {
        assert_eq!(secrets.redact(known), "***");
    }
    keeper.abort();
}
