//! From what happens to what is written: the same again is counted, not written again, and nobody gets more than a share. Pure but for
//! the clock that it is told.
//!
//! The rules are those of Kubernetes' own event recorder (client-go, `events_cache.go`): equal ones are one event with a count; of more
//! than ten that differ in their message alone one is made; an object gets a burst of 25 and one more each five minutes.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::{EventRequest, InvolvedObject};

/// Events that are counted on; the one that was longest quiet is forgotten for another.
const KNOWN: usize = 512;
/// Objects whose share is kept.
const OBJECTS: usize = 1_024;
/// The same again is told at most so often.
const AGAIN: Duration = Duration::from_secs(10);
/// An event that was quiet for so long is over: the next is another. API servers forget events after an hour.
const OVER: Duration = Duration::from_secs(600);
/// So many that differ in their message alone.
const SIMILAR: u32 = 10;
/// For one object.
const OBJECT: Rate = Rate { burst: 25.0, per_second: 1.0 / 300.0 };
/// For all of them.
const ALL: Rate = Rate { burst: 100.0, per_second: 5.0 };
/// The API takes no longer messages.
const MESSAGE: usize = 1_024;
const NAME: usize = 230;

#[derive(Debug, Clone, Copy)]
struct Rate {
    burst: f64,
    per_second: f64,
}

/// What may be spent, and what it was at some time.
#[derive(Debug, Clone, Copy)]
struct Share {
    left: f64,
    at: Instant,
}

impl Share {
    fn new(rate: Rate, now: Instant) -> Self {
        Self { left: rate.burst, at: now }
    }

    fn refill(&mut self, rate: Rate, now: Instant) {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() * rate.per_second;
        self.left = (self.left + gained).min(rate.burst);
        self.at = now;
    }

    /// How long until one may be told.
    fn until_one(mut self, rate: Rate, now: Instant) -> Duration {
        self.refill(rate, now);
        Duration::from_secs_f64((1.0 - self.left).max(0.0) / rate.per_second)
    }
}

/// A request to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) happening: EventRequest,
    /// The event's: says what it is, so that it is never there twice.
    pub(super) name: String,
    /// It was not written before.
    pub(super) is_new: bool,
    pub(super) count: u32,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
}

#[derive(Debug)]
struct Known {
    happening: EventRequest,
    name: String,
    count: u32,
    first: Timestamp,
    last: Timestamp,
    heard: Instant,
    /// When it was written last, and with which count.
    written: Option<(Instant, u32)>,
}

#[derive(Debug)]
struct Similar {
    count: u32,
    since: Instant,
}

/// What was told, and what may be.
#[derive(Debug, Default)]
pub(super) struct Aggregator {
    /// This node.
    node: String,
    known: Vec<Known>,
    similar: HashMap<(InvolvedObject, String), Similar>,
    shares: HashMap<InvolvedObject, Share>,
    all: Option<Share>,
}

impl Aggregator {
    pub(super) fn of(node: &str) -> Self {
        Self { node: node.to_owned(), ..Self::default() }
    }

    /// Takes note of something. Returns what is to be written at once.
    pub(super) fn take(&mut self, mut happening: EventRequest, at: Timestamp, now: Instant) -> Option<Write> {
        self.forget(now);
        happening.message = cut(&happening.message, MESSAGE);
        let is_known = |known: &Known| known.happening == happening;
        let place = match self.known.iter().position(is_known) {
            Some(place) => place,
            None => {
                let happening = self.among_similar(happening, now);
                // By its message it may be one of the combined ones.
                let place = self.known.iter().position(|known| {
                    known.happening.object == happening.object
                        && known.happening.reason == happening.reason
                        && (known.happening.message == happening.message
                            || is_combined(&known.happening) && is_combined(&happening))
                });
                match place {
                    Some(place) => {
                        if let Some(known) = self.known.get_mut(place) {
                            known.happening = happening;
                        }
                        place
                    }
                    None => self.learn(happening, at, now),
                }
            }
        };
        let known = self.known.get_mut(place)?;
        known.count = known.count.saturating_add(1);
        known.last = at;
        known.heard = now;
        self.write(place, now)
    }

    /// Something that was counted and not told, if it may be now.
    pub(super) fn due(&mut self, now: Instant) -> Option<Write> {
        (0..self.known.len()).find_map(|place| self.write(place, now))
    }

    /// How long until something may be due.
    pub(super) fn until_due(&self, now: Instant) -> Option<Duration> {
        let all = self.all.map_or(Duration::ZERO, |share| share.until_one(ALL, now));
        let until_due = |known: &Known| {
            let share = self.shares.get(&known.happening.object);
            let share = share.map_or(Duration::ZERO, |share| share.until_one(OBJECT, now));
            known.until_due(now).max(share).max(all).max(Duration::from_millis(250))
        };
        self.known.iter().filter(|known| known.is_untold()).map(until_due).min()
    }

    /// What is left untold, whatever the share: nobody will be there to tell it. Only what people have not heard of at all, or heard with
    /// another count.
    pub(super) fn rest(&mut self) -> Option<Write> {
        let now = Instant::now();
        self.known.iter_mut().find(|known| known.is_untold()).map(|known| known.tell(now))
    }

    fn write(&mut self, place: usize, now: Instant) -> Option<Write> {
        let known = self.known.get_mut(place)?;
        if !known.is_untold() || !known.until_due(now).is_zero() {
            return None;
        }
        let all = self.all.get_or_insert_with(|| Share::new(ALL, now));
        all.refill(ALL, now);
        let share = self.shares.entry(known.happening.object.clone()).or_insert_with(|| Share::new(OBJECT, now));
        share.refill(OBJECT, now);
        if all.left < 1.0 || share.left < 1.0 {
            return None;
        }
        all.left -= 1.0;
        share.left -= 1.0;
        Some(known.tell(now))
    }

    /// Past so many that differ in their message alone, the rest is one.
    fn among_similar(&mut self, mut happening: EventRequest, now: Instant) -> EventRequest {
        if self.similar.len() >= OBJECTS && !self.similar.contains_key(&key(&happening)) {
            self.similar.clear();
        }
        let similar = self.similar.entry(key(&happening)).or_insert(Similar { count: 0, since: now });
        if now.saturating_duration_since(similar.since) >= OVER {
            *similar = Similar { count: 0, since: now };
        }
        similar.count = similar.count.saturating_add(1);
        if similar.count > SIMILAR {
            happening.message = cut(&format!("{COMBINED}{}", happening.message), MESSAGE);
        }
        happening
    }

    fn learn(&mut self, happening: EventRequest, at: Timestamp, now: Instant) -> usize {
        if self.known.len() >= KNOWN {
            let oldest = self.known.iter().enumerate().min_by_key(|(_, known)| known.heard).map(|(place, _)| place);
            if let Some(oldest) = oldest {
                self.known.swap_remove(oldest);
            }
        }
        let name = name(&self.node, &happening, at);
        self.known.push(Known { happening, name, count: 0, first: at, last: at, heard: now, written: None });
        self.known.len() - 1
    }

    fn forget(&mut self, now: Instant) {
        self.known.retain(|known| now.saturating_duration_since(known.heard) < OVER || known.is_untold());
        self.similar.retain(|_, similar| now.saturating_duration_since(similar.since) < OVER);
        if self.shares.len() >= OBJECTS {
            self.shares.retain(|_, share| {
                share.refill(OBJECT, now);
                share.left < OBJECT.burst - 0.5
            });
        }
        if self.shares.len() >= OBJECTS {
            // So many objects that all have used theirs up: all begin anew, under the share of all.
            self.shares.clear();
        }
    }
}

impl Known {
    fn is_untold(&self) -> bool {
        self.written.is_none_or(|(_, count)| count != self.count)
    }

    fn until_due(&self, now: Instant) -> Duration {
        self.written.map_or(Duration::ZERO, |(at, _)| AGAIN.saturating_sub(now.saturating_duration_since(at)))
    }

    fn tell(&mut self, now: Instant) -> Write {
        let is_new = self.written.is_none();
        self.written = Some((now, self.count));
        Write {
            happening: self.happening.clone(),
            name: self.name.clone(),
            is_new,
            count: self.count,
            first: self.first,
            last: self.last,
        }
    }
}

/// As client-go begins such a message.
const COMBINED: &str = "(combined from similar events): ";

fn is_combined(happening: &EventRequest) -> bool {
    happening.message.starts_with(COMBINED)
}

fn key(happening: &EventRequest) -> (InvolvedObject, String) {
    (happening.object.clone(), happening.reason.clone())
}

/// `OBJECT.HASH`, as all events are called: the same for the same thing at the same time, however often it is tried.
fn name(node: &str, happening: &EventRequest, at: Timestamp) -> String {
    let mut hasher = DefaultHasher::new();
    node.hash(&mut hasher);
    happening.hash(&mut hasher);
    at.as_nanosecond().hash(&mut hasher);
    let object = match &happening.object {
        InvolvedObject::Node => node,
        InvolvedObject::Pod { name, .. } => name,
    };
    format!("{}.{:016x}", cut(object, NAME).trim_end_matches(['.', '-']), hasher.finish())
}

/// At most so many bytes, not in the middle of a character.
fn cut(text: &str, most: usize) -> String {
    text.get(..text.floor_char_boundary(most)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn happening(pod: usize, message: &str) -> EventRequest {
        let object =
            InvolvedObject::Pod { namespace: "ns".to_owned(), name: format!("pod-{pod}"), uid: format!("u-{pod}") };
        EventRequest { object, is_warning: true, reason: "OOMKilling".to_owned(), message: message.to_owned() }
    }

    fn at(seconds: u64) -> (Timestamp, Duration) {
        let second = i64::try_from(seconds).unwrap();
        (Timestamp::from_second(1_800_000_000 + second).unwrap(), Duration::from_secs(seconds))
    }

    #[test]
    fn the_same_again_is_counted_and_told_later() {
        let (mut events, start) = (Aggregator::default(), Instant::now());
        let mut take = |seconds| {
            let (wall, after) = at(seconds);
            events.take(happening(1, "killed"), wall, start + after)
        };
        let first = take(0).unwrap();
        assert_eq!((first.is_new, first.count), (true, 1));
        assert_eq!([take(1), take(2), take(3)], [None, None, None]);
        assert_eq!(events.until_due(start + at(4).1), Some(Duration::from_secs(6)));
        let later = events.due(start + at(10).1).unwrap();
        assert_eq!((later.is_new, later.count, &later.name), (false, 4, &first.name));
        assert_eq!(later.last, at(3).0);
        assert_eq!(events.due(start + at(30).1), None, "told");
        assert_eq!(events.until_due(start + at(30).1), None);
        // After a long silence it is another event.
        let (wall, after) = at(3_000);
        let another = events.take(happening(1, "killed"), wall, start + after).unwrap();
        assert!(another.is_new && another.name != first.name);
    }

    #[test]
    fn what_differs_in_its_message_alone_becomes_one() {
        let (mut events, start) = (Aggregator::default(), Instant::now());
        let mut names: Vec<String> = Vec::new();
        for number in 0..30 {
            let (wall, after) = at(number);
            if let Some(write) = events.take(happening(1, &format!("process {number}")), wall, start + after) {
                names.push(write.name);
            }
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 11, "ten of their own, one for the rest");
        let last = events.due(start + at(60).1).unwrap();
        assert_eq!((last.count, last.happening.message.as_str()), (20, "(combined from similar events): process 29"));
    }

    #[test]
    fn an_object_gets_its_share_and_all_together_theirs() {
        let (mut events, start) = (Aggregator::default(), Instant::now());
        let (wall, _) = at(0);
        let mut of_one = 0;
        for number in 0..100_usize {
            let mut one = happening(1, "x");
            one.reason = format!("Reason{number}");
            of_one += usize::from(events.take(one, wall, start).is_some());
        }
        assert_eq!(of_one, 25);
        let others = (2..400).filter(|pod| events.take(happening(*pod, "x"), wall, start).is_some()).count();
        assert_eq!(others, 75, "one hundred in all");
        assert!(events.known.len() <= KNOWN);
        // Nothing is lost: what was held back is told as the shares fill.
        let later = start + Duration::from_secs(10);
        assert_eq!(std::iter::from_fn(|| events.due(later)).count(), 50);
    }

    #[test]
    fn what_waits_for_its_share_wakes_nobody_before() {
        let (mut events, start) = (Aggregator::default(), Instant::now());
        for number in 0..30_usize {
            let _write =
                events.take(EventRequest { reason: format!("Reason{number}"), ..happening(1, "x") }, at(0).0, start);
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
        // Another object has a share of its own.
        assert!(events.take(happening(2, "x"), at(0).0, later).is_some());
    }

    #[test]
    fn memory_is_bounded() {
        let (mut events, start) = (Aggregator::default(), Instant::now());
        for pod in 0..5_000 {
            let _write = events.take(happening(pod, "x"), at(0).0, start + Duration::from_secs(pod as u64));
        }
        assert!(events.known.len() <= KNOWN && events.shares.len() <= OBJECTS && events.similar.len() <= OBJECTS);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let long = "ä".repeat(2_000);
        let write = Aggregator::default().take(happening(1, &long), at(0).0, Instant::now()).unwrap();
        assert_eq!(write.happening.message.len(), MESSAGE);
        assert_eq!(cut("aä", 2), "a");
    }
}
