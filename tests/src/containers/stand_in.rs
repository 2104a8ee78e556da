//! A stand-in for a container runtime without containers: it answers every call of CRI with an empty message. A scenario stops its process
//! to see an agent beside a runtime that accepts connections and never answers.

use std::path::Path;

use anyhow::{Context, Result};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::net::{UnixListener, UnixStream};

use super::call::framed;
use super::wire::Message;

/// Serves on this socket until the process ends.
pub fn serve(socket: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    runtime.block_on(async {
        let listener = UnixListener::bind(socket).with_context(|| format!("bind {}", socket.display()))?;
        loop {
            let (stream, _) = listener.accept().await.context("accept a connection")?;
            drop(tokio::spawn(serve_connection(stream)));
        }
    })
}

async fn serve_connection(stream: UnixStream) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        // A client that ends its connection meanwhile needs no answer.
        drop(tokio::spawn(async move { answer(request, respond).await.ok() }));
    }
}

async fn answer(request: Request<h2::RecvStream>, mut respond: h2::server::SendResponse<bytes::Bytes>) -> Result<()> {
    let message = if request.uri().path().ends_with("/Version") {
        Message::default().text(1, "0.1.0").text(2, "stand-in").text(3, "1").text(4, "v1")
    } else {
        Message::default()
    };
    let mut body = request.into_body();
    while let Some(chunk) = body.data().await {
        body.flow_control().release_capacity(chunk?.len())?;
    }
    let head = Response::builder().header("content-type", "application/grpc").body(())?;
    let mut stream = respond.send_response(head, false)?;
    stream.send_data(framed(message.encoded())?, false)?;
    stream.send_trailers(HeaderMap::from_iter([("grpc-status".parse()?, HeaderValue::from_static("0"))]))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::call::call;
    use super::super::wire::Answer;
    use super::*;

    #[test]
    fn every_call_is_answered() {
        let socket = std::env::temp_dir().join(format!("stand-in-{}.sock", std::process::id()));
        let of_thread = socket.clone();
        std::thread::spawn(move || serve(&of_thread));
        while !socket.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let asked = |method: &str| {
            let method = format!("/runtime.v1.RuntimeService/{method}");
            call(&socket, &method, &Message::default().text(1, "x"), Duration::from_secs(20)).unwrap()
        };
        assert_eq!(Answer::parse(&asked("Version")).unwrap().text(2), "stand-in");
        assert!(asked("ListPodSandbox").is_empty());
        std::fs::remove_file(&socket).unwrap();
    }
}
