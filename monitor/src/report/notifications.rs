//! Notifications: a program and a server learn of each incident. A thread of its own does all the work, so that the loop never waits.

mod command;
pub mod detached;
mod failure_text;
mod notice;
mod permitted;
mod webhook;

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use prometheus::{IntCounter, IntCounterVec};

use super::incident_limiter::IncidentLimiter;
use super::register::{follow, metrics};
use crate::config::NotificationOptions;
use crate::incidents::Incident;
use crate::units::{Monotonic, lock};
use notice::Notice;

/// Name of notifications in the list of degraded capabilities.
pub const CAPABILITY: &str = "notifications";
pub const EFFECT: &str = "incidents are recorded, but a receiver of `notifications` does not learn of them";
/// Notifications that wait for a slow receiver. Further ones are only counted.
const WAITING: usize = 16;
/// The agent's exit waits this long for the last notifications.
const LAST_ONES: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// The program of this process.
const OWN_PROGRAM: &str = "/proc/self/exe";
const WAYS: [&str; 2] = ["command", "webhook"];

metrics! {
    /// The metrics of notifications.
    pub(super) struct NotificationMetrics {
        /// Notifications of incidents, by their way (command, webhook) and outcome (sent, failed).
        notifications: IntCounterVec = "notifications_total"{way, outcome},
        /// Incidents of which no notification was sent, because of `notifications.maxPerMinute` or because receivers are too slow.
        suppressed: IntCounter = "notifications_suppressed_total",
    }
}

impl NotificationMetrics {
    pub(super) fn observe(&self, report: &NotificationReport) {
        for (way, Outcomes { sent, failed }) in WAYS.into_iter().zip(report.ways) {
            follow(&self.notifications.with_label_values(&[way, "sent"]), sent);
            follow(&self.notifications.with_label_values(&[way, "failed"]), failed);
        }
        follow(&self.suppressed, report.suppressed);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NotificationReport {
    /// In the order of [`WAYS`].
    ways: [Outcomes; 2],
    suppressed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Outcomes {
    sent: u64,
    failed: u64,
}

/// The loop's handle of the thread.
#[derive(Debug)]
pub struct Notifier {
    options: NotificationOptions,
    limiter: IncidentLimiter,
    /// Incidents that found the queue full since the last notification.
    missed: u64,
    counts: Arc<Mutex<NotificationReport>>,
    worker: Option<Worker>,
}

#[derive(Debug)]
struct Worker {
    /// Dropped at the end, which ends the thread.
    queue: SyncSender<Box<Notice>>,
    /// Why the last notification of each way failed.
    failures: Arc<Mutex<[Option<String>; 2]>>,
    ended: Receiver<()>,
}

impl Default for Notifier {
    fn default() -> Self {
        let options = NotificationOptions::default();
        Self { limiter: limiter(&options), options, missed: 0, counts: Arc::default(), worker: None }
    }
}

fn limiter(options: &NotificationOptions) -> IncidentLimiter {
    IncidentLimiter::new(options.max_per_minute, MINUTE / options.max_per_minute.max(1))
}

impl Notifier {
    /// Puts the options in force. A thread with other options sends what it has, and ends.
    pub fn follow(&mut self, options: &NotificationOptions) -> std::io::Result<()> {
        if self.options == *options {
            return Ok(());
        }
        // The receivers before do not apply any more, even if the thread of the new ones cannot be started.
        self.worker = None;
        if !options.is_off() {
            self.worker = Some(Worker::start(options, &self.counts)?);
        }
        self.options = options.clone();
        self.limiter = limiter(options);
        Ok(())
    }

    /// Queues a notification of a new incident, unless there were too many.
    pub fn offer(&mut self, incident: &Incident, now: Monotonic) {
        let Some(worker) = &self.worker else { return };
        if !self.options.kinds.contains(&notice::kind_of(incident)) {
            return;
        }
        let Some(suppressed) = self.limiter.admit(incident, now) else {
            lock(&self.counts).suppressed += 1;
            return;
        };
        let notice = Box::new(Notice::new(incident, suppressed + self.missed));
        if worker.queue.try_send(notice).is_ok() {
            self.missed = 0;
        } else {
            self.missed += suppressed + 1;
            lock(&self.counts).suppressed += 1;
        }
    }

    /// Returns why the last notification was not sent; `None` if it was.
    pub fn degradation(&self) -> Option<String> {
        let failures = lock(&self.worker.as_ref()?.failures).clone();
        let reasons = WAYS.iter().zip(failures).filter_map(|(way, reason)| Some(format!("{way}: {}", reason?)));
        let reasons: Vec<String> = reasons.collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    pub fn report(&self) -> NotificationReport {
        *lock(&self.counts)
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        if let Some(Worker { queue, ended, .. }) = self.worker.take() {
            drop(queue);
            let _late = ended.recv_timeout(LAST_ONES);
        }
    }
}

impl Worker {
    fn start(options: &NotificationOptions, counts: &Arc<Mutex<NotificationReport>>) -> std::io::Result<Self> {
        let (queue, work) = sync_channel::<Box<Notice>>(WAITING);
        let (end, ended) = channel();
        let failures = Arc::new(Mutex::new([None, None]));
        let (options, counts, noted) = (options.clone(), Arc::clone(counts), Arc::clone(&failures));
        let run = move || {
            // The thread inherits the loop's raised priority, and passes its own on. Lowering a priority needs no privilege.
            let _kept = rustix::process::setpriority_process(None, 0);
            *lock(&noted) = refused(&options);
            for notice in work {
                for (way, result) in send(&options, &notice).into_iter().enumerate() {
                    let Some(result) = result else { continue };
                    if let (Some(outcomes), Some(failure)) =
                        (lock(&counts).ways.get_mut(way), lock(&noted).get_mut(way))
                    {
                        *(if result.is_ok() { &mut outcomes.sent } else { &mut outcomes.failed }) += 1;
                        *failure = result.err();
                    }
                }
            }
            // This fails if the agent has stopped waiting.
            let _sent = end.send(());
        };
        Builder::new().name("notifications".to_owned()).stack_size(512 * 1024).spawn(run)?;
        Ok(Self { queue, failures, ended })
    }
}

/// Returns, before the first incident, why a way will fail. The results are in the order of [`WAYS`].
fn refused(options: &NotificationOptions) -> [Option<String>; 2] {
    let program = options.command.first();
    let program = program.and_then(|name| {
        permitted::program(Path::new(name), &options.commands).err().map(|reason| format!("{name}: {reason}"))
    });
    let token = options.webhook.as_ref().and_then(|webhook| webhook.token_file.as_deref());
    [program, token.and_then(|file| permitted::token_file(file, &options.directory).err())]
}

/// Sends a notification by each way that is configured. The results are in the order of [`WAYS`].
fn send(options: &NotificationOptions, notice: &Notice) -> [Option<Result<(), String>>; 2] {
    let by_command = || command::run(Path::new(OWN_PROGRAM), options, notice);
    let command = (!options.command.is_empty()).then(by_command);
    let webhook =
        options.webhook.as_ref().map(|webhook| webhook::post(webhook, &options.directory, notice, options.timeout));
    [command, webhook]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::notification_options::{NoticeKind, Webhook};

    fn options() -> NotificationOptions {
        let url = "http://127.0.0.1:1/".parse().unwrap();
        let webhook = Some(Webhook { url, authorities: None, token_file: None });
        NotificationOptions { webhook, max_per_minute: 2, kinds: vec![NoticeKind::DryRun], ..Default::default() }
    }

    #[test]
    fn further_incidents_of_a_minute_are_only_counted() {
        let mut notifier = Notifier::default();
        let dry_run = Incident { kind: crate::incidents::Kind::Eviction, ..Incident::default() };
        let at = |seconds: u64| Monotonic(seconds * 1_000_000_000);
        notifier.offer(&dry_run, at(0));
        assert_eq!(notifier.report(), NotificationReport::default(), "off");
        notifier.follow(&options()).unwrap();
        for seconds in [1, 1, 1, 2, 40] {
            notifier.offer(&dry_run, at(seconds));
            notifier.offer(&Incident::default(), at(seconds));
        }
        let counts = Arc::clone(&notifier.counts);
        let failures = Arc::clone(&notifier.worker.as_ref().unwrap().failures);
        drop(notifier);
        // The third and fourth were one too many. Nothing listens at the port; an OOM kill is not configured.
        let ways = [Outcomes::default(), Outcomes { sent: 0, failed: 3 }];
        assert_eq!(*lock(&counts), NotificationReport { ways, suppressed: 2 });
        let failures = lock(&failures).clone();
        assert!(failures[1].as_ref().is_some_and(|reason| reason.contains("127.0.0.1:1")), "{failures:?}");
    }
}
