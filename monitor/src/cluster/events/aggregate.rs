//! Decides which events are written: repetitions are counted instead of written again, and each object has a rate limit. Pure; the
//! caller passes the time.
//!
//! The rules are those of Kubernetes' own event recorder (client-go, `events_cache.go`): equal events are one event with a count; more
//! than ten that differ only in their message are combined; an object has a burst of 25 events and one more each five minutes.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::event_request::{EventRequest, InvolvedObject};

/// Events whose repetitions are counted; beyond that the one that is quiet for longest is dropped.
const KNOWN: usize = 512;
/// Objects with a rate limit of their own.
const OBJECTS: usize = 1_024;
/// Time between two updates of one event's count.
const AGAIN: Duration = Duration::from_secs(10);
/// After this much silence the next occurrence is a new event. API servers drop events after an hour.
const OVER: Duration = Duration::from_secs(600);
/// Events that may differ only in their message before they are combined.
const SIMILAR: u32 = 10;
const OBJECT_RATE: Rate = Rate { burst: 25.0, per_second: 1.0 / 300.0 };
const TOTAL_RATE: Rate = Rate { burst: 100.0, per_second: 5.0 };
/// Bytes of a message that the API accepts.
const MESSAGE: usize = 1_024;
const NAME: usize = 230;

#[derive(Debug, Clone, Copy)]
struct Rate {
    burst: f64,
    per_second: f64,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Bucket {
    fn new(rate: Rate, now: Instant) -> Self {
        Self { left: rate.burst, at: now }
    }

    fn refill(&mut self, rate: Rate, now: Instant) {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * rate.per_second;
        self.left = (self.left + gained).min(rate.burst);
        self.at = now;
    }

    /// Returns the time until a token is there.
    fn until_one(mut self, rate: Rate, now: Instant) -> Duration {
        self.refill(rate, now);
        Duration::from_secs_f64((1.0 - self.left).max(0.0) / rate.per_second)
    }
}

/// An event to create, or whose count to update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EventWrite {
    pub(super) request: EventRequest,
    /// Follows from the content, so that an event is never there twice.
    pub(super) name: String,
    pub(super) is_new: bool,
    pub(super) count: u32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

#[derive(Debug)]
struct Known {
    request: EventRequest,
    name: String,
    count: u32,
    first: Timestamp,
    last: Timestamp,
    last_seen: Instant,
    /// When it was last written, and with which count.
    written: Option<(Instant, u32)>,
}

#[derive(Debug)]
struct Similar {
    count: u32,
    since: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Aggregator {
    node: String,
    known: Vec<Known>,
    similar: HashMap<(InvolvedObject, String), Similar>,
    buckets: HashMap<InvolvedObject, Bucket>,
    total: Option<Bucket>,
}

impl Aggregator {
    pub(super) fn of(node: &str) -> Self {
        Self { node: node.to_owned(), ..Self::default() }
    }

    /// Counts an event. Returns what to write now.
    pub(super) fn take(&mut self, mut request: EventRequest, at: Timestamp, now: Instant) -> Option<EventWrite> {
        self.forget(now);
        request.message = cut(&request.message, MESSAGE);
        let place = match self.known.iter().position(|known| known.request == request) {
            Some(place) => place,
            None => {
                let request = self.combine(request, now);
                let is_same = |known: &Known| {
                    known.request.object == request.object
                        && known.request.reason == request.reason
                        && (known.request.message == request.message
                            || is_combined(&known.request) && is_combined(&request))
                };
                match self.known.iter().position(is_same) {
                    Some(place) => {
                        if let Some(known) = self.known.get_mut(place) {
                            known.request = request;
                        }
                        place
                    }
                    None => self.learn(request, at, now),
                }
            }
        };
        let known = self.known.get_mut(place)?;
        known.count = known.count.saturating_add(1);
        known.last = at;
        known.last_seen = now;
        self.write(place, now)
    }

    /// Returns an event whose count is not written yet, if it may be written now.
    pub(super) fn due(&mut self, now: Instant) -> Option<EventWrite> {
        (0..self.known.len()).find_map(|place| self.write(place, now))
    }

    /// Returns the time until [`Self::due`] may return an event.
    pub(super) fn until_due(&self, now: Instant) -> Option<Duration> {
        let total = self.total.map_or(Duration::ZERO, |bucket| bucket.until_one(TOTAL_RATE, now));
        let until_due = |known: &Known| {
            let bucket = self.buckets.get(&known.request.object);
            let bucket = bucket.map_or(Duration::ZERO, |bucket| bucket.until_one(OBJECT_RATE, now));
            known.until_due(now).max(bucket).max(total).max(Duration::from_millis(250))
        };
        self.known.iter().filter(|known| known.is_unwritten()).map(until_due).min()
    }

    /// Returns an event whose count is not written yet, whatever the rate limits: the agent is stopping.
    pub(super) fn rest(&mut self) -> Option<EventWrite> {
        let now = Instant::now();
        self.known.iter_mut().find(|known| known.is_unwritten()).map(|known| known.next_write(now))
    }

    fn write(&mut self, place: usize, now: Instant) -> Option<EventWrite> {
        let known = self.known.get_mut(place)?;
        if !known.is_unwritten() || !known.until_due(now).is_zero() {
            return None;
        }
        let total = self.total.get_or_insert_with(|| Bucket::new(TOTAL_RATE, now));
        total.refill(TOTAL_RATE, now);
        let object = known.request.object.clone();
        let bucket = self.buckets.entry(object).or_insert_with(|| Bucket::new(OBJECT_RATE, now));
        bucket.refill(OBJECT_RATE, now);
        if total.left < 1.0 || bucket.left < 1.0 {
            return None;
        }
        total.left -= 1.0;
        bucket.left -= 1.0;
        Some(known.next_write(now))
    }

    /// Marks the message as combined once too many events differ only in it.
    fn combine(&mut self, mut request: EventRequest, now: Instant) -> EventRequest {
        if self.similar.len() >= OBJECTS && !self.similar.contains_key(&key(&request)) {
            self.similar.clear();
        }
        let similar = self.similar.entry(key(&request)).or_insert(Similar { count: 0, since: now });
        if now.saturating_duration_since(similar.since) >= OVER {
            *similar = Similar { count: 0, since: now };
        }
        similar.count = similar.count.saturating_add(1);
        if similar.count > SIMILAR {
            request.message = cut(&format!("{COMBINED}{}", request.message), MESSAGE);
        }
        request
    }

    fn learn(&mut self, request: EventRequest, at: Timestamp, now: Instant) -> usize {
        if self.known.len() >= KNOWN {
            let oldest = self.known.iter().enumerate().min_by_key(|(_, known)| known.last_seen).map(|(place, _)| place);
            if let Some(oldest) = oldest {
                self.known.swap_remove(oldest);
            }
        }
        let name = name(&self.node, &request, at);
        self.known.push(Known { request, name, count: 0, first: at, last: at, last_seen: now, written: None });
        self.known.len() - 1
    }

    fn forget(&mut self, now: Instant) {
        self.known.retain(|known| now.saturating_duration_since(known.last_seen) < OVER || known.is_unwritten());
        self.similar.retain(|_, similar| now.saturating_duration_since(similar.since) < OVER);
        if self.buckets.len() >= OBJECTS {
            self.buckets.retain(|_, bucket| {
                bucket.refill(OBJECT_RATE, now);
                bucket.left < OBJECT_RATE.burst - 0.5
            });
        }
        if self.buckets.len() >= OBJECTS {
            // All objects have used up their burst: all start anew, under the total rate.
            self.buckets.clear();
        }
    }
}

impl Known {
    fn is_unwritten(&self) -> bool {
        self.written.is_none_or(|(_, count)| count != self.count)
    }

    fn until_due(&self, now: Instant) -> Duration {
        self.written.map_or(Duration::ZERO, |(at, _)| AGAIN.saturating_sub(now.saturating_duration_since(at)))
    }

    fn next_write(&mut self, now: Instant) -> EventWrite {
        let is_new = self.written.is_none();
        self.written = Some((now, self.count));
        EventWrite {
            request: self.request.clone(),
            name: self.name.clone(),
            is_new,
            count: self.count,
            first: self.first,
            last: self.last,
        }
    }
}

/// client-go's prefix.
const COMBINED: &str = "(combined from similar events): ";

fn is_combined(request: &EventRequest) -> bool {
    request.message.starts_with(COMBINED)
}

fn key(request: &EventRequest) -> (InvolvedObject, String) {
    (request.object.clone(), request.reason.clone())
}

/// Returns `OBJECT.HASH`, as events are named: the same for the same occurrence, however often it is sent.
fn name(node: &str, request: &EventRequest, at: Timestamp) -> String {
    let mut hasher = DefaultHasher::new();
    node.hash(&mut hasher);
    request.hash(&mut hasher);
    at.as_nanosecond().hash(&mut hasher);
    let object = match &request.object {
        InvolvedObject::Node => node,
        InvolvedObject::Pod { name, .. } => name,
    };
    format!("{}.{:016x}", cut(object, NAME).trim_end_matches(['.', '-']), hasher.finish())
}

/// Cuts a text to this many bytes, between characters.
fn cut(text: &str, most: usize) -> String {
    text.get(..text.floor_char_boundary(most)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(pod: usize, message: &str) -> EventRequest {
        let object =
            InvolvedObject::Pod { namespace: "ns".to_owned(), name: format!("pod-{pod}"), uid: format!("u-{pod}") };
        EventRequest { object, is_warning: true, reason: "OOMKilling".to_owned(), message: message.to_owned() }
    }

    fn at(seconds: u64) -> (Timestamp, Duration) {
        let second = i64::try_from(seconds).unwrap();
        (Timestamp::from_second(1_800_000_000 + second).unwrap(), Duration::from_secs(seconds))
    }

    #[test]
    fn repetitions_are_counted_and_written_later() {
        let (mut events, start) = (Aggregator::default(), Instant::now());
        let mut take = |seconds| {
            let (wall, after) = at(seconds);
            events.take(event(1, "killed"), wall, start + after)
        };
        let first = take(0).unwrap();
        assert_eq!((first.is_new, first.count), (true, 1));
        assert_eq!([take(1), take(2), take(3)], [None, None, None]);
        assert_eq!(events.until_due(start + at(4).1), Some(Duration::from_secs(6)));
        let later = events.due(start + at(10).1).unwrap();
        assert_eq!((later.is_new, later.count, &later.name), (false, 4, &first.name));
        assert_eq!(later.last, at(3).0);
        assert_eq!(events.due(start + at(30).1), None, "already written");
        assert_eq!(events.until_due(start + at(30).1), None);
        // After a long silence it is another event.
        let (wall, after) = at(3_000);
        let another = events.take(event(1, "killed"), wall, start + after).unwrap();
        assert!(another.is_new && another.name != first.name);
    }

    #[test]
    fn events_that_differ_only_in_the_message_are_combined() {
        let (mut events, start) = (Aggregator::default(), Instant::now());
        let mut names: Vec<String> = Vec::new();
        for number in 0..30 {
            let (wall, after) = at(number);
            if let Some(write) = events.take(event(1, &format!("process {number}")), wall, start + after) {
                names.push(write.name);
            }
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 11, "ten single events, one combined");
        let last = events.due(start + at(60).1).unwrap();
        assert_eq!((last.count, last.request.message.as_str()), (20, "(combined from similar events): process 29"));
    }

    #[test]
    fn rates_are_limited_per_object_and_in_total() {
        let (mut events, start) = (Aggregator::default(), Instant::now());
        let (wall, _) = at(0);
        let mut of_one = 0;
        for number in 0..100_usize {
            let mut one = event(1, "x");
            one.reason = format!("Reason{number}");
            of_one += usize::from(events.take(one, wall, start).is_some());
        }
        assert_eq!(of_one, 25);
        let others = (2..400).filter(|pod| events.take(event(*pod, "x"), wall, start).is_some()).count();
        assert_eq!(others, 75, "one hundred in total");
        assert!(events.known.len() <= KNOWN);
        // Nothing is lost: held-back events are written as the buckets fill.
        let later = start + Duration::from_secs(10);
        assert_eq!(std::iter::from_fn(|| events.due(later)).count(), 50);
    }

    #[test]
    fn a_rate_limited_event_is_due_when_its_token_is_there() {
        let (mut events, start) = (Aggregator::default(), Instant::now());
        for number in 0..30_usize {
            let _write =
                events.take(EventRequest { reason: format!("Reason{number}"), ..event(1, "x") }, at(0).0, start);
        }
        let wait = events.until_due(start).unwrap();
        assert!(wait > Duration::from_secs(299) && wait <= Duration::from_secs(300), "{wait:?}");
        assert_eq!(events.due(start + wait.mul_f64(0.99)), None);
        let later = start + wait + Duration::from_millis(1);
        assert_eq!(std::iter::from_fn(|| events.due(later)).count(), 1);
        assert!(
            events.until_due(later).is_some_and(|wait| wait > Duration::from_secs(299)),
            "the next one waits as long"
        );
        // Another object has a bucket of its own.
        assert!(events.take(event(2, "x"), at(0).0, later).is_some());
    }

    #[test]
    fn memory_is_bounded() {
        let (mut events, start) = (Aggregator::default(), Instant::now());
        for pod in 0..5_000 {
            let _write = events.take(event(pod, "x"), at(0).0, start + Duration::from_secs(pod as u64));
        }
        assert!(events.known.len() <= KNOWN && events.buckets.len() <= OBJECTS && events.similar.len() <= OBJECTS);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "ä".repeat(2_000);
        let write = Aggregator::default().take(event(1, &long), at(0).0, Instant::now()).unwrap();
        assert_eq!(write.request.message.len(), MESSAGE);
        assert_eq!(cut("aä", 2), "a");
    }
}
