//! Bodies that end in a wrong way, and bodies whose bytes are counted.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, Sleep};

use crate::answer::Body;

/// The time in which sent data leaves this process.
const ARRIVAL: Duration = Duration::from_millis(20);

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The connection breaks.
    Cut,
    /// The connection stays open and silent.
    Stall,
    /// The body ends properly, as servers end watches.
    Finish,
}

struct Shaped {
    inner: Body,
    left: usize,
    end: End,
    /// The wait in which the sent data arrives before the connection breaks.
    pause: Pin<Box<Sleep>>,
}

/// Passes this many bytes, then ends.
pub(super) fn shaped(inner: Body, after: usize, end: End) -> Body {
    let pause = Box::pin(tokio::time::sleep(Duration::ZERO));
    Shaped { inner, left: after, end, pause }.boxed_unsync()
}

impl HttpBody for Shaped {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.left == 0 {
            return match self.end {
                End::Cut => self.pause.as_mut().poll(context).map(|()| Some(Err(super::cut()))),
                // Never wakes: the client closes the connection.
                End::Stall => Poll::Pending,
                End::Finish => Poll::Ready(None),
            };
        }
        match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(mut data) => {
                    data.truncate(self.left);
                    self.left -= data.len();
                    self.pause.as_mut().reset(Instant::now() + ARRIVAL);
                    Poll::Ready(Some(Ok(Frame::data(data))))
                }
                Err(other) => Poll::Ready(Some(Ok(other))),
            },
            other => other,
        }
    }
}

struct Counted {
    inner: Body,
    bytes: Arc<AtomicU64>,
}

/// Adds the bytes of a body to `bytes` as they are sent.
pub(super) fn counted(inner: Body, bytes: Arc<AtomicU64>) -> Body {
    Counted { inner, bytes }.boxed_unsync()
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let length = frame.data_ref().map_or(0, Bytes::len);
            self.bytes.fetch_add(length as u64, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    // Without the exact size hyper would send every answer in chunks.
    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
