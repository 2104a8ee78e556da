//! What must hold of the decision whatever the node, its pods and the policy: checked on made-up ones.
//!
//! Every property says which wrong implementation it would catch, and counts the cases in which it had something to say: one that
//! holds because nothing ever happened fails. The cases are the same on every run; `PROPTEST_RNG_SEED` and `PROPTEST_CASES` change that.

#[cfg(test)]
#[path = "properties/numbers.rs"]
mod numbers;
#[cfg(test)]
#[path = "properties/pressure.rs"]
mod pressure;
#[cfg(test)]
#[path = "properties/ranking.rs"]
mod ranking;
#[cfg(test)]
#[path = "properties/thresholds.rs"]
mod thresholds;
#[cfg(test)]
#[path = "properties/whole_pass.rs"]
mod whole_pass;
#[cfg(test)]
#[path = "properties/world.rs"]
mod world;

#[cfg(test)]
mod check {
    use std::cell::Cell;
    use std::env;

    use proptest::strategy::Strategy;
    use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};

    /// Counts the cases in which there was something to see.
    #[derive(Debug, Default)]
    pub struct Seen(Cell<u32>);

    impl Seen {
        pub fn when(&self, interesting: bool) {
            self.0.set(self.0.get() + u32::from(interesting));
        }
    }

    /// Checks a property on `cases` made-up values, in at least `interesting` of which it must have seen something.
    pub fn forall<S: Strategy>(
        cases: u32,
        interesting: u32,
        strategy: &S,
        property: impl Fn(S::Value, &Seen) -> Result<(), TestCaseError>,
    ) {
        let config = Config { failure_persistence: None, ..Config::default() };
        let cases = if env::var_os("PROPTEST_CASES").is_some() { config.cases } else { cases };
        let rng_seed = match config.rng_seed {
            RngSeed::Random => RngSeed::Fixed(3),
            chosen => chosen,
        };
        let seen = Seen::default();
        let checked =
            TestRunner::new(Config { cases, rng_seed, ..config }).run(strategy, |value| property(value, &seen));
        if let Err(error) = checked {
            panic!("{error}");
        }
        let seen = seen.0.get();
        assert!(seen >= interesting.min(cases), "only {seen} of {cases} cases had anything to see");
    }
}
