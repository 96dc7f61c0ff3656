//! How many topics a token may create.

use serde_json::{Value, json};

use crate::program::{Program, client};
use crate::{Kept, on_both_stores};

on_both_stores!(a_token_leaves_topics_to_others,);

/// Tokens, and `printf %s … | sha256sum` of each.
const TOKENS: [(&str, &str, &str); 3] = [
    ("shop", "produce", "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"),
    ("bank", "produce", "265c0d5b0ee2e930fe3e35f14ccc7da75b8aa2717db15972da8e5c6e1fea94cb"),
    ("operator", "admin", "60e3fdff7fa1ec662d2810194b3fb51ef76e2f9cbf092680b316f9baa4277edf"),
];
const SHOP: &str = "secret";
const BANK: &str = "dly_secret";
const OPERATOR: &str = "dly_tester";

async fn ask(delayd: &Program, token: &str, path: &str, body: Value) -> (u16, Value) {
    let post = client().post(delayd.url(path)).bearer_auth(token);
    let answer = post.body(body.to_string()).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

async fn add(delayd: &Program, token: &str, topic: &str) -> (u16, Value) {
    let task = json!({"topic": topic, "delay": "1h", "content": {"n": 1}});
    ask(delayd, token, "/delay/task/add", task).await
}

/// One token made all topics of `limits.topics`, and another one could make none.
async fn a_token_leaves_topics_to_others(kept: Kept) {
    let token = |(name, scope, hash): (&str, &str, &str)| {
        format!("{{name='{name}', token_sha256='{hash}', scopes=['{scope}'], topics=['*']}}")
    };
    let tokens = format!("http.auth.tokens=[{}]", TOKENS.map(token).join(", "));
    let sets = [tokens, "limits.topics=20".to_owned()];
    let mut delayd = kept.start(&sets).await;
    for topic in ["shop.1", "shop.2", "shop.1"] {
        assert_eq!(add(&delayd, SHOP, topic).await.0, 200);
    }
    let (status, refused) = add(&delayd, SHOP, "shop.3").await;
    assert_eq!((status, &refused["dm_error"]), (429, &json!(1029)), "{refused}");
    let says = "topic: does not exist yet, and the token has created 2 topics, its share of \
        limits.topics; use one of them, or let a token with the scope admin create this one";
    assert_eq!(refused["error_msg"], says);
    let task = |topic: &str| json!({"topic": topic, "delay": "1h", "content": {"n": 1}});
    let tasks = json!({"tasks": [task("shop.3"), task("shop.1"), task("shop.4")]});
    let (_, batch) = ask(&delayd, SHOP, "/delay/task/add_batch", tasks).await;
    let code = |n: usize| batch["results"][n]["dm_error"].as_i64().unwrap();
    assert_eq!([code(0), code(1), code(2)], [1029, 0, 1029], "{batch}");
    assert_eq!(add(&delayd, BANK, "bank.1").await.0, 200, "another token creates its own");

    // The bound holds after a restart.
    delayd.signal("TERM");
    delayd.ended().await;
    let delayd = kept.start(&sets).await;
    assert_eq!(add(&delayd, SHOP, "shop.3").await.0, 429);
    let (_, shown) = ask(&delayd, OPERATOR, "/delay/topic/get", json!({"topic": "shop.1"})).await;
    assert_eq!(shown["created_by"], "shop", "{shown}");

    // An administrator creates any topic, and makes room.
    for topic in ["a", "b", "shop.3"] {
        let (status, set) =
            ask(&delayd, OPERATOR, "/delay/topic/set", json!({"topic": topic})).await;
        assert_eq!((status, &set["created_by"]), (200, &json!("operator")), "{set}");
    }
    assert_eq!(add(&delayd, SHOP, "shop.3").await.0, 200);
    let purge = json!({"topic": "shop.2", "confirm": "shop.2"});
    assert_eq!(ask(&delayd, OPERATOR, "/delay/topic/purge", purge).await.0, 200);
    let delete = json!({"topic": "shop.2"});
    assert_eq!(ask(&delayd, OPERATOR, "/delay/topic/delete", delete).await.0, 200);
    assert_eq!(add(&delayd, SHOP, "shop.4").await.0, 200);
    assert_eq!(add(&delayd, SHOP, "shop.5").await.0, 429);
}
