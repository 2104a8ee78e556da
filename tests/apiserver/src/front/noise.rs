//! Adds unknown fields to answers, as a future server would.

use std::io;

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::answer::{Body, Reply, whole};

/// Maps whose keys belong to the user: a new key there would be an entry, not an unknown field.
const MAPS: [&str; 17] = [
    "labels",
    "annotations",
    "requests",
    "limits",
    "capacity",
    "allocatable",
    "nodeSelector",
    "matchLabels",
    "fieldsV1",
    "data",
    "stringData",
    "overhead",
    "disruptedPods",
    "allocatedResources",
    "volumeAttributes",
    "options",
    "extra",
];

/// Adds unknown fields to an answer.
pub(super) async fn add(reply: Reply, watch: bool) -> io::Result<Reply> {
    let (head, mut body) = reply.into_parts();
    if !watch {
        let bytes = body.collect().await?.to_bytes();
        return Ok(Reply::from_parts(head, whole(noisy(&bytes))));
    }
    let (lines, receiver) = mpsc::channel::<io::Result<Frame<Bytes>>>(16);
    tokio::spawn(async move {
        let mut pending = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let data = match frame {
                Ok(frame) => frame.into_data().unwrap_or_default(),
                Err(error) => return drop(lines.send(Err(error)).await),
            };
            pending.extend_from_slice(&data);
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line = pending.split_to(end + 1);
                let mut line = noisy(&line);
                line.push(b'\n');
                if lines.send(Ok(Frame::data(line.into()))).await.is_err() {
                    return;
                }
            }
        }
    });
    let stream = futures_util::stream::unfold(receiver, async |mut receiver| Some((receiver.recv().await?, receiver)));
    let body: Body = StreamBody::new(stream).boxed_unsync();
    Ok(Reply::from_parts(head, body))
}

fn noisy(bytes: &[u8]) -> Vec<u8> {
    match serde_json::from_slice(bytes) {
        Ok(mut value) => {
            fill(&mut value);
            value.to_string().into_bytes()
        }
        Err(_) => bytes.to_vec(),
    }
}

fn fill(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                if !MAPS.contains(&name.as_str()) {
                    fill(value);
                }
            }
            fields.insert("aFieldOfTheFuture".to_owned(), json!({"of": ["a", 1, null, {"server": "1.99"}]}));
            fields.insert("zFieldOfTheFuture".to_owned(), json!("text"));
        }
        Value::Array(items) => items.iter_mut().for_each(fill),
        _ => {}
    }
}
