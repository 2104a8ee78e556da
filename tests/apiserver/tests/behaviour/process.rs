//! The server as a process of its own, with its controls.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use bytes::Bytes;
use http::{Method, Request};
use kube::client::Body;
use kube::{Client, Config};
use serde_json::{Value, json};

async fn ask(client: &Client, method: Method, path: &str, body: &Value) -> kube::Result<(u16, Value)> {
    let bytes = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let request = Request::builder().method(method).uri(path).body(Body::from(bytes)).unwrap();
    let answer = client.send(request).await?;
    let status = answer.status().as_u16();
    Ok((status, serde_json::from_slice(&answer.into_body().collect_bytes().await?).unwrap_or_default()))
}

#[tokio::test]
async fn a_process_serves_and_takes_faults() {
    let mut process = Command::new(env!("CARGO_BIN_EXE_test-apiserver"))
        .args(["--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let url = said.trim().strip_prefix("serving at ").unwrap();
    let mut config = Config::new(url.parse().unwrap());
    config.default_retry = false;
    config.auth_info.token = Some(node_pressure_apiserver::access::ADMIN_TOKEN.to_owned().into());
    let client = Client::try_from(config).unwrap();
    let fault = json!({"what": {"kind": "answer", "code": 503, "reason": "", "message": "m", "retryAfter": 3},
        "method": "GET", "containing": ["/nodes"], "times": 1});
    let (_, id) = ask(&client, Method::POST, "/control/faults", &fault).await.unwrap();
    assert_eq!(id, json!({"id": 1}));
    for expected in [503, 200] {
        assert_eq!(ask(&client, Method::GET, "/api/v1/nodes", &Value::Null).await.unwrap().0, expected);
    }
    let (_, log) = ask(&client, Method::GET, "/control/log", &Value::Null).await.unwrap();
    assert_eq!(
        (&log[0]["status"], &log[1]["carriedOut"], &log[1]["path"]),
        (&json!(503), &json!(200), &json!("/api/v1/nodes"))
    );
    for what in ["compact", "expire-watches", "bookmark", "forget-everything", "unknown-fields?on=true"] {
        assert_eq!(
            ask(&client, Method::POST, &format!("/control/{what}"), &Value::Null).await.unwrap().0,
            200,
            "{what}"
        );
    }
    assert_eq!(ask(&client, Method::POST, "/control/nonsense", &Value::Null).await.unwrap().0, 404);
    process.kill().unwrap();
    process.wait().unwrap();
}
