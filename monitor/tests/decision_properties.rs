//! Properties of the decision that hold for every node, pod and policy, checked on generated ones.
//!
//! Each property names the wrong implementations that it catches, and counts the cases in which it checked something: a property without
//! such cases fails. The cases are the same on every run, unless `PROPTEST_RNG_SEED` or `PROPTEST_CASES` changes them.

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

    /// Counts the cases in which a property checked something.
    #[derive(Debug, Default)]
    pub struct Seen(Cell<u32>);

    impl Seen {
        pub fn when(&self, interesting: bool) {
            self.0.set(self.0.get() + u32::from(interesting));
        }
    }

    /// Checks a property on `cases` generated values. At least `interesting` of them must give it something to check.
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
        assert!(seen >= interesting.min(cases), "only {seen} of {cases} cases checked something");
    }
}
