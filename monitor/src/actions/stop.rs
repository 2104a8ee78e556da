//! Pods ended by whoever runs them: in an orderly way, and with what they leave on the disk. Killing a cgroup frees memory, but no
//! writable layer.

use std::fmt;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::workloads::PodUid;

/// Who runs pods: the container runtime. It is asked, and answers when it has done it; nobody waits.
pub trait PodStopper: fmt::Debug + Send {
    /// Asks to stop all containers of a pod and its sandbox: SIGTERM, the grace period, SIGKILL.
    ///
    /// # Errors
    /// Why it cannot be asked now.
    fn stop(&self, pod: &PodUid, grace: Duration) -> Result<Asked, String>;

    /// Asks to remove what is left of a pod that has ended, which gives back its disk.
    ///
    /// # Errors
    /// Why it cannot be asked now.
    fn remove(&self, pod: &PodUid) -> Result<Asked, String>;
}

/// Why it was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotDone {
    /// The pod must not be touched: it is static, as only the runtime's annotations tell.
    Critical,
    /// Who was asked does not allow it: a disruption budget, or the API server. Nothing was touched.
    Refused(String),
    /// It could not be.
    Failed(String),
}

/// Something that was asked for, and its answer to come.
#[derive(Debug)]
pub struct Asked(Receiver<Result<(), NotDone>>);

/// The other end: for whoever does it.
#[derive(Debug)]
pub struct Answer(Sender<Result<(), NotDone>>);

/// Both ends of a question.
#[must_use]
pub fn question() -> (Answer, Asked) {
    let (answer, asked) = channel();
    (Answer(answer), Asked(asked))
}

impl Answer {
    /// Tells that it is done, or why it is not.
    pub fn give(self, answer: Result<(), NotDone>) {
        // Who asked may have given up.
        let _unheard = self.0.send(answer);
    }
}

impl Asked {
    /// The answer, once there is one. It is given once: whoever asks again is told that nobody is there.
    #[must_use]
    pub fn answer(&self) -> Option<Result<(), NotDone>> {
        match self.0.try_recv() {
            Ok(answer) => Some(answer),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err(NotDone::Failed("whoever was asked has gone without an answer".to_owned())))
            }
        }
    }
}

/// One order, for whoever speaks to the runtime.
#[derive(Debug)]
pub struct Order {
    pub pod: PodUid,
    /// What to do with it.
    pub what: OrderKind,
    /// Takes the outcome.
    pub answer: Answer,
}

/// What is to be done with a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderKind {
    /// Stop it.
    Stop {
        /// Between SIGTERM and SIGKILL.
        grace: Duration,
    },
    /// Remove what is left of it.
    Remove,
}

/// Orders that the loop has not handed to the runtime yet. The room `runtime` does not know of evictions.
#[derive(Debug, Clone, Default)]
pub struct OrderQueue(Arc<Mutex<Vec<Order>>>);

impl OrderQueue {
    /// Takes the orders that wait.
    #[must_use]
    pub fn take(&self) -> Vec<Order> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, pod: &PodUid, what: OrderKind) -> Asked {
        let (answer, asked) = question();
        let order = Order { pod: pod.clone(), what, answer };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(order);
        asked
    }
}

impl PodStopper for OrderQueue {
    fn stop(&self, pod: &PodUid, grace: Duration) -> Result<Asked, String> {
        Ok(self.put(pod, OrderKind::Stop { grace }))
    }

    fn remove(&self, pod: &PodUid) -> Result<Asked, String> {
        Ok(self.put(pod, OrderKind::Remove))
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
        assert_eq!(asked.answer(), Some(failed("whoever was asked has gone without an answer")));
        let (answer, asked) = question();
        drop(asked);
        answer.give(Ok(()));
    }

    #[test]
    fn orders_wait_until_they_are_taken() {
        let queue = OrderQueue::default();
        let pod = PodUid("u".to_owned());
        let grace = Duration::from_secs(1);
        let asked = [queue.stop(&pod, grace).unwrap(), queue.remove(&pod).unwrap()];
        let orders = queue.clone().take();
        let what: Vec<OrderKind> = orders.iter().map(|order| order.what).collect();
        assert_eq!(what, [OrderKind::Stop { grace }, OrderKind::Remove]);
        assert!(queue.take().is_empty());
        orders.into_iter().for_each(|order| order.answer.give(Ok(())));
        assert_eq!(asked.map(|asked| asked.answer()), [Some(Ok(())), Some(Ok(()))]);
    }
}
