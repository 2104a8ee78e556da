//! Passes the loop's data to the HTTP server. The loop publishes a publication when a request asks for one, and once a minute; it
//! renders and measures nothing for a request. A request takes the last publication if that is young, and waits for the next one otherwise.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::timeout;

use super::live::Live;
use super::stats::Known;
use super::{Metrics, NodeReport};
use crate::config::{Mode, Semantics};
use crate::node::Hierarchy;
use crate::runtime::View;
use crate::units::lock;

/// A request takes a publication that is younger than this.
pub const YOUNG: Duration = Duration::from_millis(100);
/// A request waits this long for the loop, and then takes the last publication.
const LONGEST_WAIT: Duration = Duration::from_millis(250);
/// The loop publishes for requests for at most this part of its time: a publication reads the kernel's maps, which takes longer with more
/// cgroups.
const PAUSE_SHARE: u32 = 100;
/// The longest pause between two publications for requests.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Publications on their way: at most ten a second, and each takes milliseconds to observe.
const ON_THE_WAY: usize = 4;

/// The loop's knowledge at one moment.
#[derive(Debug)]
pub struct Publication {
    pub at: Instant,
    pub report: NodeReport,
    pub runtime: View,
    pub mode: Mode,
    pub semantics: Semantics,
    pub hierarchy: Hierarchy,
    pub listen: SocketAddr,
    /// The data for `/stats/summary`, if a request needs it.
    pub known: Option<Known>,
    /// The data for `/api/v1/state`, if a request needs it.
    pub live: Option<Live>,
    pub generation: u64,
}

/// The data that a request needs of a publication beyond the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Report,
    /// A complete report. Only the metrics show all of it.
    Metrics,
    /// [`Publication::known`].
    Known,
    /// [`Publication::live`].
    Live,
}

impl Needs {
    fn are_met(self, publication: &Publication) -> bool {
        match self {
            Self::Report => true,
            Self::Metrics => publication.report.is_complete(),
            Self::Known => publication.known.is_some(),
            Self::Live => publication.live.is_some(),
        }
    }

    /// Returns how long a request waits for the loop. Publications for viewers may hold up the one that it needs for a second.
    const fn longest_wait(self) -> Duration {
        match self {
            Self::Report | Self::Known => LONGEST_WAIT,
            Self::Metrics | Self::Live => LONGEST_PAUSE.saturating_mul(2),
        }
    }
}

#[derive(Debug)]
pub struct Publications {
    ask: Notify,
    /// Before this time, no request makes the loop publish.
    due: Mutex<Option<Instant>>,
    wants_metrics: AtomicBool,
    wants_known: AtomicBool,
    wants_live: AtomicBool,
    /// Rises with each change that a request is to see: a publication of an earlier generation is not taken.
    generation: AtomicU64,
    sender: mpsc::Sender<Publication>,
    receiver: Mutex<Option<mpsc::Receiver<Publication>>>,
    latest: watch::Sender<Option<Arc<Publication>>>,
    /// The time of the publication that the metrics show.
    measured: Mutex<Option<Instant>>,
    /// Rises while a threshold is near.
    trouble: watch::Sender<u64>,
}

impl Default for Publications {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(ON_THE_WAY);
        Self {
            ask: Notify::new(),
            due: Mutex::default(),
            wants_metrics: AtomicBool::new(false),
            wants_known: AtomicBool::new(false),
            wants_live: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            sender,
            receiver: Mutex::new(Some(receiver)),
            latest: watch::Sender::new(None),
            measured: Mutex::default(),
            trouble: watch::Sender::new(0),
        }
    }
}

impl Publications {
    /// Returns when a request waits for a publication, and not before the pause after the last one. Cancel-safe.
    pub async fn asked(&self) {
        let due = *lock(&self.due);
        if let Some(due) = due {
            tokio::time::sleep_until(due.into()).await;
        }
        self.ask.notified().await;
    }

    /// Begins the pause after a publication that took the loop `cost`. However many clients ask, the loop has the rest of its time.
    pub fn pause(&self, cost: Duration) {
        let pause = cost.saturating_mul(PAUSE_SHARE).clamp(YOUNG, LONGEST_PAUSE);
        *lock(&self.due) = Some(Instant::now() + pause);
    }

    /// Tells the streams of a calm node that it is calm no longer. The loop calls this in every turn near a threshold.
    pub fn note_trouble(&self) {
        self.trouble.send_modify(|turns| *turns = turns.wrapping_add(1));
    }

    /// Changes with each turn of the loop near a threshold.
    pub fn trouble(&self) -> watch::Receiver<u64> {
        self.trouble.subscribe()
    }

    /// Returns the time of the publication that the metrics show.
    pub fn measured(&self) -> Option<Instant> {
        *lock(&self.measured)
    }

    /// Whether the next publication must contain a complete report.
    pub fn takes_metrics(&self) -> bool {
        self.wants_metrics.swap(false, Ordering::AcqRel)
    }

    /// Whether the next publication must contain the data for `/stats/summary`.
    pub fn takes_known(&self) -> bool {
        self.wants_known.swap(false, Ordering::AcqRel)
    }

    /// Whether the next publication must contain the data for `/api/v1/state`.
    pub fn takes_live(&self) -> bool {
        self.wants_live.swap(false, Ordering::AcqRel)
    }

    /// Marks the last publication as outdated, whatever its age.
    pub fn outdate(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Publishes a publication. Returns false if the HTTP server lags behind: the publication is then dropped. Without an HTTP
    /// server, publications are dropped too.
    pub fn publish(&self, mut publication: Publication) -> bool {
        // Only the loop changes the generation, and only the loop calls this function.
        publication.generation = self.generation.load(Ordering::Acquire);
        !matches!(self.sender.try_send(publication), Err(TrySendError::Full(_)))
    }

    /// Takes each complete publication into the metrics, and keeps the last one for the pages. Runs on the HTTP server's thread, once.
    pub async fn observe(&self, metrics: &Metrics) {
        let receiver = lock(&self.receiver).take();
        let Some(mut receiver) = receiver else { return };
        while let Some(mut publication) = receiver.recv().await {
            if publication.report.is_complete() {
                metrics.observe(&publication.report, Instant::now());
                metrics.configuration.set_mode(publication.mode);
                metrics.runtime.observe(&publication.runtime);
                *lock(&self.measured) = Some(publication.at);
            }
            // Drop the largest parts: only the metrics need them.
            (publication.report.counters, publication.report.pods) = (Vec::new(), Vec::new());
            publication.runtime = View::default();
            self.latest.send_replace(Some(Arc::new(publication)));
        }
    }

    /// Returns a young publication, or the last one after a short wait, or `None` before the first. Returns only a publication that has
    /// what the request needs.
    pub async fn take(&self, needs: Needs) -> Option<Arc<Publication>> {
        let mut latest = self.latest.subscribe();
        let is_good = |publication: &Option<Arc<Publication>>| {
            let is_current = |it: &Publication| it.generation == self.generation.load(Ordering::Acquire);
            publication.as_ref().is_some_and(|it| it.at.elapsed() < YOUNG && is_current(it) && needs.are_met(it))
        };
        let last = latest.borrow_and_update().clone();
        if is_good(&last) {
            return last;
        }
        let asking = async {
            loop {
                match needs {
                    Needs::Report => {}
                    Needs::Metrics => self.wants_metrics.store(true, Ordering::Release),
                    Needs::Known => self.wants_known.store(true, Ordering::Release),
                    Needs::Live => self.wants_live.store(true, Ordering::Release),
                }
                self.ask.notify_one();
                if latest.changed().await.is_err() || is_good(&latest.borrow_and_update()) {
                    break;
                }
            }
        };
        // If the loop is busy, serve the last publication instead of an error.
        let _busy = timeout(needs.longest_wait(), asking).await;
        let last = self.latest.borrow().clone();
        last.filter(|publication| needs.are_met(publication))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::CgroupVersion;
    use crate::report::series::SeriesLimits;

    fn publication(at: Instant) -> Publication {
        let hierarchy = Hierarchy { version: CgroupVersion::V2, memory: "/none".into(), freezer: None, hybrid: false };
        Publication {
            at,
            report: NodeReport { probe_statistics: Some(Vec::new()), ..NodeReport::default() },
            runtime: View::default(),
            mode: Mode::Observe,
            semantics: Semantics::Corrected,
            hierarchy,
            listen: "127.0.0.1:9946".parse().unwrap(),
            known: None,
            live: None,
            generation: 0,
        }
    }

    async fn observed(publications: &Arc<Publications>) {
        let metrics = Metrics::new("1", SeriesLimits::default()).unwrap();
        let shared = Arc::clone(publications);
        tokio::spawn(async move { shared.observe(&metrics).await });
        tokio::task::yield_now().await;
    }

    #[tokio::test]
    async fn a_young_publication_does_not_wake_the_loop() {
        let publications = Arc::new(Publications::default());
        observed(&publications).await;
        let at = Instant::now();
        assert!(publications.publish(publication(at)));
        tokio::task::yield_now().await;
        assert_eq!(publications.take(Needs::Report).await.unwrap().at, at);
        assert!(timeout(Duration::ZERO, publications.asked()).await.is_err(), "the loop sleeps");
        publications.outdate();
        let (taken, ()) = tokio::join!(publications.take(Needs::Report), async {
            publications.asked().await;
            assert!(publications.publish(publication(Instant::now())));
        });
        assert!(taken.unwrap().at > at);
    }

    #[tokio::test]
    async fn a_busy_loop_is_not_waited_for_long() {
        let publications = Arc::new(Publications::default());
        observed(&publications).await;
        assert!(publications.take(Needs::Report).await.is_none(), "none was published");
        let old = Instant::now().checked_sub(YOUNG).unwrap();
        publications.publish(publication(old));
        tokio::task::yield_now().await;
        assert_eq!(publications.take(Needs::Report).await.unwrap().at, old);
        assert!(publications.take(Needs::Known).await.is_none(), "it has no basis of /stats/summary");
        assert!(publications.takes_known() && !publications.takes_known());
    }

    #[tokio::test]
    async fn metrics_take_complete_reports_only() {
        let publications = Arc::new(Publications::default());
        observed(&publications).await;
        let at = Instant::now();
        assert!(publications.publish(publication(at)));
        tokio::task::yield_now().await;
        let later = at + Duration::from_nanos(1);
        assert!(publications.publish(Publication { report: NodeReport::default(), ..publication(later) }));
        tokio::task::yield_now().await;
        assert_eq!(publications.take(Needs::Report).await.unwrap().at, later);
        assert_eq!(publications.measured(), Some(at));
        let (taken, ()) = tokio::join!(publications.take(Needs::Metrics), async {
            publications.asked().await;
            assert!(publications.takes_metrics() && !publications.takes_metrics());
            assert!(publications.publish(publication(Instant::now())));
        });
        assert_eq!(publications.measured(), Some(taken.unwrap().at));
    }

    #[tokio::test]
    async fn a_publication_that_was_outdated_on_its_way_is_asked_for_again() {
        let publications = Arc::new(Publications::default());
        observed(&publications).await;
        let (taken, second) = tokio::join!(publications.take(Needs::Report), async {
            publications.asked().await;
            assert!(publications.publish(publication(Instant::now())));
            publications.outdate();
            publications.asked().await;
            let second = Instant::now();
            assert!(publications.publish(publication(second)));
            second
        });
        assert_eq!(taken.unwrap().at, second);
    }

    #[tokio::test]
    async fn requests_take_at_most_a_hundredth_of_the_loops_time() {
        let cases = [(0, 100), (1, 100), (5, 500), (400, 1000)];
        for (cost, pause) in cases.map(|(cost, pause)| (Duration::from_millis(cost), Duration::from_millis(pause))) {
            let publications = Publications::default();
            publications.ask.notify_one();
            let begun = Instant::now();
            publications.pause(cost);
            let is_early = timeout(pause / 2, publications.asked()).await.is_ok();
            assert!(!is_early, "{cost:?}");
            timeout(Duration::from_secs(20), publications.asked()).await.expect("the request is kept meanwhile");
            assert!(begun.elapsed() >= pause, "{cost:?}: {:?}", begun.elapsed());
        }
    }

    #[test]
    fn a_publication_is_not_missed_without_an_http_server() {
        let publications = Publications::default();
        drop(publications.receiver.lock().unwrap().take());
        assert!((0..=ON_THE_WAY).all(|_| publications.publish(publication(Instant::now()))));
    }

    #[test]
    fn a_publication_that_is_not_taken_is_refused() {
        let publications = Publications::default();
        let published = (0..ON_THE_WAY + 1).filter(|_| publications.publish(publication(Instant::now()))).count();
        assert_eq!(published, ON_THE_WAY);
    }
}
