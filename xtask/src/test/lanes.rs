//! Runs pieces of work side by side. Pieces that measure time run alone and first. Then two lanes run concurrently; a lane takes
//! the next piece as soon as it is free.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use anyhow::{Result, anyhow};

/// How many other pieces may run at the same time as this piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// No other piece. This piece runs before all pieces with another lane.
    Alone,
    /// One other piece.
    Beside,
}

/// Runs every piece. Returns the results in the order of `pieces`. A piece that fails or panics does not affect the others.
pub fn run<T: Sync, R: Send + Sync>(
    pieces: &[(Lane, T)],
    work: impl Fn(Lane, &T) -> Result<R> + Sync,
) -> Vec<Result<R>> {
    let done: Vec<OnceLock<Result<R>>> = pieces.iter().map(|_| OnceLock::new()).collect();
    let of = |wanted| pieces.iter().zip(&done).filter(move |((lane, _), _)| *lane == wanted);
    let one = |((lane, piece), place): (&(Lane, T), &OnceLock<Result<R>>)| {
        // Each place is filled only once, so `set` cannot fail.
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
    // `caught` catches the panic of each piece. If a lane ends early nevertheless, its piece has no result here.
    done.into_iter().map(|result| result.into_inner().unwrap_or_else(|| Err(anyhow!("its lane broke off")))).collect()
}

/// Runs `work`, and returns a panic as an error.
pub fn caught<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    // The piece has failed, so nothing uses the state that a panic has left incomplete.
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
    fn results_have_the_order_of_the_pieces() {
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
    fn the_piece_alone_is_first_and_two_lanes_run_together() {
        let order = Mutex::new(Vec::new());
        // Pieces `a` and `b` wait for each other, so the test ends only if both run at the same time.
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
        assert_eq!(place("c"), 3, "the lane that is free first takes the next piece");
    }
}
