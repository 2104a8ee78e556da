//! Pieces of work side by side: what measures time runs alone, then two lanes at the same time, each one piece after the other.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use anyhow::{Result, anyhow};

/// What may run beside a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Nothing, and it comes before both lanes.
    Alone,
    A,
    B,
}

/// Does every piece, and returns what came of each in the order of `pieces`, whatever ended first. A piece that fails or panics takes
/// no other with it.
pub fn run<T: Sync, R: Send>(pieces: &[(Lane, T)], work: impl Fn(Lane, &T) -> Result<R> + Sync) -> Vec<Result<R>> {
    let one_after_the_other = |wanted: Lane| -> Vec<(usize, Result<R>)> {
        let of_lane = pieces.iter().enumerate().filter(|(_, (lane, _))| *lane == wanted);
        of_lane.map(|(index, (lane, piece))| (index, caught(|| work(*lane, piece)))).collect()
    };
    let mut done: Vec<Option<Result<R>>> = pieces.iter().map(|_| None).collect();
    let mut take = |ended: Vec<(usize, Result<R>)>| {
        for (index, result) in ended {
            if let Some(place) = done.get_mut(index) {
                *place = Some(result);
            }
        }
    };
    take(one_after_the_other(Lane::Alone));
    thread::scope(|scope| {
        let beside = scope.spawn(|| one_after_the_other(Lane::B));
        take(one_after_the_other(Lane::A));
        // A panic is caught for each piece; should a lane break off all the same, its pieces are missed below.
        take(beside.join().unwrap_or_default());
    });
    done.into_iter().map(|result| result.unwrap_or_else(|| Err(anyhow!("its lane broke off")))).collect()
}

/// A panic as a failure.
pub fn caught<R>(work: impl FnOnce() -> Result<R>) -> Result<R> {
    // What the work has left half done nobody looks at: it failed.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(anyhow!("panicked: {}", message(&*panic))))
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

#[cfg(test)]
mod tests {
    use std::sync::{Barrier, Mutex};

    use anyhow::bail;

    use super::*;

    #[test]
    fn results_keep_the_order_of_the_pieces_and_none_hides_another() {
        let pieces = [(Lane::B, 1), (Lane::A, 2), (Lane::Alone, 3), (Lane::A, 4), (Lane::B, 5)];
        let results = run(&pieces, |_, number| match number {
            1 => bail!("one fails"),
            2 => panic!("two panics"),
            _ => Ok(number * 10),
        });
        let told: Vec<String> = results
            .iter()
            .map(|result| result.as_ref().map_or_else(ToString::to_string, ToString::to_string))
            .collect();
        assert_eq!(told, ["one fails", "panicked: two panics", "30", "40", "50"]);
    }

    #[test]
    fn the_lone_one_is_first_and_the_lanes_meet() {
        let order = Mutex::new(Vec::new());
        // Two that wait for each other end only where both run at once.
        let meeting = Barrier::new(2);
        let pieces = [(Lane::A, "a"), (Lane::A, "a2"), (Lane::B, "b"), (Lane::Alone, "alone")];
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
        assert!(place("a") < place("a2"));
    }
}
