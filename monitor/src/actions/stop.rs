//! Requests to stop and remove pods, answered by the container runtime or the API server. Killing a cgroup frees
//! memory, but no writable layer.

use std::fmt;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::runtime::TearDown;
use crate::units::lock;
use crate::workloads::PodUid;

/// The container runtime as evictions use it. Each request returns at once; the answer arrives later.
pub trait PodStopper: fmt::Debug + Send {
    /// Requests to stop all containers of a pod and its sandbox: SIGTERM, the grace period, SIGKILL.
    ///
    /// # Errors
    /// The reason why the request is impossible now.
    fn stop(&self, pod: &PodUid, grace: Duration) -> Result<Asked, String>;

    /// Requests to remove an ended pod, which frees its disk usage. A kubelet that tears it down is waited for.
    ///
    /// # Errors
    /// The reason why the request is impossible now.
    fn remove(&self, pod: &PodUid, by: TearDown) -> Result<Asked, String>;
}

/// Why a request was not fulfilled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotDone {
    /// The pod is static and must not be touched. Only the runtime's annotations show this.
    Critical,
    /// A disruption budget or the API server refuses. Nothing was touched.
    Refused(String),
    /// Another controller has begun to move the pod away, such as by a live migration. Nothing was touched.
    Begun {
        reason: String,
        is_explicit: bool,
    },
    Failed(String),
}

/// A request whose answer is pending.
#[derive(Debug)]
pub struct Asked(Receiver<Result<(), NotDone>>);

/// The sending end of an answer.
#[derive(Debug)]
pub struct Answer(Sender<Result<(), NotDone>>);

/// Returns both ends of a request.
pub fn question() -> (Answer, Asked) {
    let (answer, asked) = channel();
    (Answer(answer), Asked(asked))
}

impl Answer {
    pub fn give(self, answer: Result<(), NotDone>) {
        // The receiver may have stopped waiting.
        let _sent = self.0.send(answer);
    }
}

impl Asked {
    /// Returns the answer once it has arrived. The answer is returned only once; later calls report a lost sender.
    pub fn answer(&self) -> Option<Result<(), NotDone>> {
        match self.0.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err(NotDone::Failed("the thread that was asked has ended without an answer".to_owned())))
            }
        }
    }
}

#[derive(Debug)]
pub struct Order {
    pub pod: PodUid,
    pub what: OrderKind,
    /// Receives the outcome.
    pub answer: Answer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderKind {
    Stop {
        /// Time between SIGTERM and SIGKILL.
        grace: Duration,
    },
    Remove {
        by: TearDown,
    },
}

/// Queue of orders; decouples `runtime` from evictions.
#[derive(Debug, Clone, Default)]
pub struct OrderQueue(Arc<Mutex<Vec<Order>>>);

impl OrderQueue {
    /// Takes the queued orders.
    pub fn take(&self) -> Vec<Order> {
        std::mem::take(&mut *lock(&self.0))
    }

    fn put(&self, pod: &PodUid, what: OrderKind) -> Asked {
        let (answer, asked) = question();
        let order = Order { pod: pod.clone(), what, answer };
        lock(&self.0).push(order);
        asked
    }
}

impl PodStopper for OrderQueue {
    fn stop(&self, pod: &PodUid, grace: Duration) -> Result<Asked, String> {
        Ok(self.put(pod, OrderKind::Stop { grace }))
    }

    fn remove(&self, pod: &PodUid, by: TearDown) -> Result<Asked, String> {
        Ok(self.put(pod, OrderKind::Remove { by }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(why: &str) -> Result<(), NotDone> {
        Err(NotDone::Failed(why.to_owned()))
    }

    #[test]
    fn an_answer_comes_when_it_is_given() {
        let (answer, asked) = question();
        assert_eq!(asked.answer(), None);
        answer.give(failed("no"));
        assert_eq!(asked.answer(), Some(failed("no")));
        let (answer, asked) = question();
        drop(answer);
        assert_eq!(asked.answer(), Some(failed("the thread that was asked has ended without an answer")));
        let (answer, asked) = question();
        drop(asked);
        answer.give(Ok(()));
    }

    #[test]
    fn orders_wait_until_they_are_taken() {
        let queue = OrderQueue::default();
        let pod = PodUid("u".to_owned());
        let grace = Duration::from_secs(1);
        let asked = [queue.stop(&pod, grace).unwrap(), queue.remove(&pod, TearDown::Kubelet).unwrap()];
        let orders = queue.clone().take();
        let what: Vec<OrderKind> = orders.iter().map(|order| order.what).collect();
        assert_eq!(what, [OrderKind::Stop { grace }, OrderKind::Remove { by: TearDown::Kubelet }]);
        assert!(queue.take().is_empty());
        orders.into_iter().for_each(|order| order.answer.give(Ok(())));
        assert_eq!(asked.map(|asked| asked.answer()), [Some(Ok(())), Some(Ok(()))]);
    }
}
