//! Chooses the scenarios to run, from the table shared with the guest and from expressions such as `ramp` or `ramp*20`.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, bail};

use super::Cgroup;

#[path = "../../../tests/src/catalogue.rs"]
mod catalogue;

pub use catalogue::{Boot, CATALOGUE, Entry, FORWARDED, GUEST, Guest, HOST, InTest, PICTURES, VIEWED_PORT, Viewer};

/// One scenario with its number of runs.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    pub entry: &'static Entry,
    pub times: u32,
}

impl Request {
    /// Returns the request as it appears on the guest's kernel command line.
    pub fn expression(&self) -> String {
        match self.times {
            1 => self.entry.name.to_owned(),
            times => format!("{}*{times}", self.entry.name),
        }
    }

    pub fn parse(expression: &str) -> Result<Self> {
        let (name, times) = match expression.split_once('*') {
            None => (expression, 1),
            Some((name, times)) => match times.parse() {
                Ok(times) if (1..=1000).contains(&times) => (name, times),
                _ => bail!("{expression:?}: the count after `*` must be a number from 1 to 1000, as in `ramp*20`"),
            },
        };
        match CATALOGUE.iter().find(|entry| entry.name == name) {
            Some(entry) => Ok(Self { entry, times }),
            None => {
                let names: Vec<&str> = CATALOGUE.iter().map(|entry| entry.name).collect();
                bail!(
                    "{name:?} is no scenario; there are: {} (`cargo xtask vm --list` says what each is)",
                    names.join(", ")
                )
            }
        }
    }

    fn time_limit(&self, chaos: Duration) -> Duration {
        let of_run = Duration::from_secs(u64::from(self.entry.timeout_seconds));
        let chaos = if self.entry.name == "chaos" { chaos } else { Duration::ZERO };
        (of_run + chaos) * self.times
    }

    pub fn supports(&self, cgroup: Cgroup) -> bool {
        self.entry.cgroups.contains(&cgroup.word())
    }
}

/// Returns the named scenarios, or all that this cgroup layout supports in this guest. Naming an unsupported one is
/// an error.
pub fn choose(expressions: &[String], cgroup: Cgroup, guest: Guest) -> Result<Vec<Request>> {
    if expressions.is_empty() {
        let all = CATALOGUE.iter().map(|entry| Request { entry, times: 1 });
        return Ok(all.filter(|request| request.supports(cgroup) && request.entry.guest == guest).collect());
    }
    if expressions == ["cluster"] {
        return choose(&[], cgroup, Guest::Cluster);
    }
    let mut seen = BTreeSet::new();
    let mut requests = Vec::new();
    for expression in expressions {
        let request = Request::parse(expression)?;
        if !request.supports(cgroup) {
            bail!(
                "{} needs cgroup {}; this boot has {}",
                request.entry.name,
                request.entry.cgroups.join(" or "),
                cgroup.word()
            );
        }
        if !seen.insert(request.entry.name) {
            bail!("{} is asked for twice; to repeat it, write {}*2", request.entry.name, request.entry.name);
        }
        requests.push(request);
    }
    Ok(requests)
}

/// Returns the guest that these scenarios need. One boot has only one guest.
pub fn guest(requests: &[Request]) -> Result<Guest> {
    let mut guests = requests.iter().map(|request| request.entry.guest);
    let first = guests.next().unwrap_or(Guest::Plain);
    if guests.any(|guest| guest != first) {
        let names = |guest| {
            let named = requests.iter().filter(|request| request.entry.guest == guest);
            named.map(|request| request.entry.name).collect::<Vec<_>>().join(", ")
        };
        bail!(
            "these need different guests: plain: {}; with containerd: {}; with a cluster: {}; ask for them in several boots",
            names(Guest::Plain),
            names(Guest::Containerd),
            names(Guest::Cluster)
        );
    }
    Ok(first)
}

/// Returns the scenarios of one boot of `cargo xtask test`.
pub fn in_test(cgroup: Cgroup, boot: Boot, is_long: bool) -> Result<Vec<Request>> {
    CATALOGUE
        .iter()
        .filter_map(|entry| entry.expression(cgroup.word(), boot, is_long))
        .map(|expression| Request::parse(&expression))
        .collect()
}

/// Returns the time limit of all runs, from the table. `chaos` is the duration of the scenario of that name.
pub fn time_limit(requests: &[Request], chaos: Duration) -> Duration {
    requests.iter().map(|request| request.time_limit(chaos)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_name_a_scenario_and_a_count() {
        let ramp = Request::parse("ramp").unwrap();
        assert_eq!((ramp.entry.name, ramp.times), ("ramp", 1));
        assert_eq!(Request::parse("ramp*20").unwrap().expression(), "ramp*20");
        assert_eq!(Request::parse("ramp*1").unwrap().expression(), "ramp");
    }

    #[test]
    fn bad_expressions_are_refused_with_a_reason() {
        for (expression, reason) in [
            ("ramp*0", "1 to 1000"),
            ("ramp*", "1 to 1000"),
            ("ramp*x", "1 to 1000"),
            ("rampp", "there are: "),
            ("", "there are: "),
        ] {
            let error = Request::parse(expression).unwrap_err().to_string();
            assert!(error.contains(reason), "{expression}: {error}");
        }
    }

    #[test]
    fn without_names_all_supported_scenarios_run() {
        let all = choose(&[], Cgroup::V1, Guest::Plain).unwrap();
        assert!(!all.is_empty());
        assert!(all.iter().all(|request| request.entry.cgroups.contains(&"v1")));
    }

    #[test]
    fn a_scenario_named_twice_is_refused() {
        assert!(choose(&["ramp".to_owned(), "ramp*2".to_owned()], Cgroup::V2, Guest::Plain).is_err());
    }

    #[test]
    fn a_scenario_of_another_layout_is_refused() {
        for entry in CATALOGUE.iter().filter(|entry| !entry.cgroups.contains(&"v1")) {
            assert!(choose(&[entry.name.to_owned()], Cgroup::V1, Guest::Plain).is_err(), "{}", entry.name);
        }
    }

    #[test]
    fn every_boot_of_the_test_suite_runs_something() {
        for (cgroup, boot) in [
            (Cgroup::V2, Boot::Reference),
            (Cgroup::V2, Boot::Remainder),
            (Cgroup::V2, Boot::Between),
            (Cgroup::V1, Boot::Contrast),
            (Cgroup::V2, Boot::Containers),
        ] {
            let requests = in_test(cgroup, boot, false).unwrap();
            assert!(requests.iter().all(|request| request.times == 1));
            assert!(!requests.is_empty());
            assert_eq!(guest(&requests).unwrap(), boot.guest());
        }
    }

    #[test]
    fn each_scenario_runs_in_one_boot_of_the_newest_kernel() {
        let boots = [Boot::Reference, Boot::Remainder, Boot::Containers, Boot::Cluster]
            .map(|boot| in_test(Cgroup::V2, boot, true).unwrap());
        for entry in CATALOGUE.iter().filter(|entry| entry.cgroups.contains(&"v2")) {
            let times = boots.iter().flatten().filter(|request| request.entry.name == entry.name).count();
            assert_eq!(times, 1, "{}", entry.name);
        }
    }

    #[test]
    fn a_boot_has_one_guest() {
        let mixed = ["ramp", "containers"].map(|name| Request::parse(name).unwrap());
        let error = guest(&mixed).unwrap_err().to_string();
        assert!(error.contains("plain: ramp; with containerd: containers;"), "{error}");
    }
}
