//! Pieces of work side by side: what measures time runs alone, then two lanes at the same time, each of which takes the next piece when it
//! is free.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use anyhow::{Result, anyhow};

/// How many other pieces may run beside a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Nothing, and it comes before all others.
    Alone,
    /// One other.
    Beside,
}

/// Does every piece, and returns what came of each in the order of `pieces`, whatever ended first. A piece that fails or panics takes
/// no other with it.
pub fn run<T: Sync, R: Send + Sync>(
    pieces: &[(Lane, T)],
    work: impl Fn(Lane, &T) -> Result<R> + Sync,
) -> Vec<Result<R>> {
    let done: Vec<OnceLock<Result<R>>> = pieces.iter().map(|_| OnceLock::new()).collect();
    let of = |wanted| pieces.iter().zip(&done).filter(move |((lane, _), _)| *lane == wanted);
    let one = |((lane, piece), place): (&(Lane, T), &OnceLock<Result<R>>)| {
        // Each place is filled once.
        let _first = place.set(caught(|| work(*lane, piece)));
    };
    of(Lane::Alone).for_each(one);
    let waiting = Mutex::new(of(Lane::Beside));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let lane = || std::iter::from_fn(next).for_each(one);
    thread::scope(|scope| {
        scope.spawn(lane);
        lane();
    });
    // A panic is caught for each piece; should a lane break off all the same, its piece is missed here.
    done.into_iter().map(|result| result.into_inner().unwrap_or_else(|| Err(anyhow!("its lane broke off")))).collect()
}

/// A panic as a failure.
pub fn caught<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    // The state that a panic leaves half done is not used: the piece has failed.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(anyhow!("panicked: {}", message(&*panic))))
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use anyhow::bail;

    use super::*;

    #[test]
    fn results_keep_the_order_of_the_pieces_and_none_hides_another() {
        use Lane::{Alone, Beside};
        let pieces = [(Beside, 1), (Beside, 2), (Alone, 3), (Beside, 4), (Beside, 5)];
        let results = run(&pieces, |_, number| match number {
            1 => bail!("one fails"),
            2 => panic!("two panics"),
            _ => Ok(number * 10),
        });
        let stories: Vec<String> = results
            .iter()
            .map(|result| result.as_ref().map_or_else(ToString::to_string, ToString::to_string))
            .collect();
        assert_eq!(stories, ["one fails", "panicked: two panics", "30", "40", "50"]);
    }

    #[test]
    fn the_lone_one_is_first_and_the_lanes_meet() {
        let order = Mutex::new(Vec::new());
        // Two that wait for each other end only where both run at once.
        let meeting = Barrier::new(2);
        let pieces = [(Lane::Beside, "a"), (Lane::Beside, "b"), (Lane::Beside, "c"), (Lane::Alone, "alone")];
        let results = run(&pieces, |_, name| {
            order.lock().unwrap().push(*name);
            if ["a", "b"].contains(name) {
                meeting.wait();
            }
            Ok(())
        });
        assert!(results.iter().all(Result::is_ok));
        let order = order.into_inner().unwrap();
        let place = |name| order.iter().position(|one| *one == name).unwrap();
        assert_eq!(place("alone"), 0);
        assert_eq!(place("c"), 3, "who is free first takes the next");
    }
}
