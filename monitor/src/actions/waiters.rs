//! Evictions that wait for another thread: for the API server's answer, or for the container runtime.

use crate::node::filesystem_roles::FilesystemHints;
use crate::workloads::PodUid;

use super::stop::{Answer, OrderQueue};

/// Evictions that wait for the API server's answer, by pod UID.
#[derive(Debug, Default)]
pub(super) struct ApiEvictions(pub(super) Vec<(String, Answer)>);

impl ApiEvictions {
    pub(super) fn take(&mut self, uid: &str) -> Option<Answer> {
        let place = self.0.iter().position(|(of, _)| of == uid)?;
        Some(self.0.swap_remove(place).1)
    }
}

/// Orders that were handed to the runtime, with their waiters.
#[derive(Debug)]
pub(super) struct RuntimeOrders {
    pub(super) queue: OrderQueue,
    pub(super) given: Vec<(PodUid, bool, Answer)>,
    pub(super) hints: FilesystemHints,
}

impl RuntimeOrders {
    pub(super) const fn on(queue: OrderQueue) -> Self {
        Self { queue, given: Vec::new(), hints: FilesystemHints { image: None, container: None } }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stop::question;
    use super::*;

    #[test]
    fn an_answer_reaches_its_waiter() {
        let mut asking = ApiEvictions::default();
        let (answer, asked) = question();
        asking.0.push(("u".to_owned(), answer));
        assert!(asking.take("v").is_none());
        asking.take("u").unwrap().give(Ok(()));
        assert_eq!(asked.answer(), Some(Ok(())));
        assert!(asking.take("u").is_none());
    }
}
