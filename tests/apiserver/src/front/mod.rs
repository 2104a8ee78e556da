//! A listener with a log of requests and faults, in front of a server in memory or a real one.

mod backend;
mod body;
mod faults;
mod listen;
mod log;
mod noise;
mod tls;

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::watch;

use crate::answer::{self, Failure, Reply};

pub(crate) use backend::Backend;
pub use body::End;
pub use faults::{Fault, FaultId, Faults, What};
pub use listen::Front;
pub(crate) use listen::Threads;
pub use log::{Log, Record, Traffic};
pub use tls::Identity;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) backend: Backend,
    pub(crate) faults: Faults,
    pub(crate) log: Log,
    /// Incremented to cut all connections.
    pub(crate) cut: watch::Sender<u64>,
}

impl Shared {
    pub(crate) fn cut_connections(&self) {
        self.cut.send_modify(|cuts| *cuts += 1);
    }

    /// Answers one request, with its fault. An error cuts the connection.
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> io::Result<Reply> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let number = self.log.begin(&head, &body);
        let what = self.faults.strike(&head);
        if let Some(what) = &what {
            self.log.hit(number, what);
        }
        let answer = self.answer_with(what, head, body, number).await;
        match &answer {
            Ok(reply) => self.log.end(number, Some(reply.status())),
            Err(_) => self.log.end(number, None),
        }
        answer.map(|reply| self.log.counted(reply))
    }

    async fn answer_with(&self, what: Option<What>, head: Parts, body: Bytes, number: u64) -> io::Result<Reply> {
        match what {
            None => self.pass(head, body, number).await,
            Some(What::Answer { code, reason, message, retry_after }) => {
                Ok(Failure::of_test(code, reason, message, retry_after).reply())
            }
            Some(What::Page { code }) => Ok(answer::page(code)),
            Some(What::Delay(by)) => {
                tokio::time::sleep(by).await;
                self.pass(head, body, number).await
            }
            Some(What::CutBefore) => Err(cut()),
            Some(What::CutAfter) => {
                self.pass(head, body, number).await?;
                Err(cut())
            }
            Some(What::NeverAnswer) => std::future::pending().await,
            Some(What::NeverAnswerAfter) => {
                self.pass(head, body, number).await?;
                std::future::pending().await
            }
            Some(What::Body { after, end }) => {
                let reply = self.pass(head, body, number).await?;
                Ok(reply.map(|inner| body::shaped(inner, after, end)))
            }
        }
    }

    /// Passes a request to the backend.
    async fn pass(&self, head: Parts, body: Bytes, number: u64) -> io::Result<Reply> {
        let watch = head.uri.query().is_some_and(log::is_watch);
        let mut reply = self.backend.send(Request::from_parts(head, body)).await?;
        self.log.carried_out(number, reply.status());
        for header in [CONTENT_LENGTH, TRANSFER_ENCODING] {
            reply.headers_mut().remove(header);
        }
        if self.faults.unknown_fields() {
            return noise::add(reply, watch).await;
        }
        Ok(reply)
    }
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection is cut on purpose")
}
