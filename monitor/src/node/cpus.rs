//! The CPUs that are online.

use std::num::NonZero;
use std::path::Path;

/// The kernel's list of all online CPUs. `sched_getaffinity`, and so `available_parallelism`, follows the cpuset and the quota of the
/// agent's own cgroup: under the static CPU manager it finds 4 of 128 CPUs.
const ONLINE: &str = "/sys/devices/system/cpu/online";
/// The capability's name.
const CAPABILITY: &str = "online CPUs";

/// Returns the number of online CPUs. If the kernel's list cannot be read, returns the number that this process may use, and the
/// degradation.
pub fn online() -> (usize, Option<String>) {
    online_by(Path::new(ONLINE))
}

fn online_by(list: &Path) -> (usize, Option<String>) {
    let text = std::fs::read_to_string(list).map_err(|error| error.to_string());
    match text.and_then(|text| count(&text).ok_or_else(|| format!("not a list of CPUs: {:?}", text.trim()))) {
        Ok(cpus) => (cpus, None),
        Err(reason) => {
            let own = std::thread::available_parallelism().map_or(1, NonZero::get);
            let list = list.display();
            let effect = "if the agent may use fewer CPUs than there are, it samples too rarely near a threshold";
            (own, Some(format!("{CAPABILITY}: {list}: {reason}; {own} are assumed: {effect}")))
        }
    }
}

/// Counts the CPUs of a list such as `0-3,8,10-11`. Returns `None` for any other text, and for an empty list.
fn count(text: &str) -> Option<usize> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    text.trim().split(',').map(range).try_fold(0_usize, |sum, cpus| sum.checked_add(cpus?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::split_degradation;

    #[test]
    fn a_list_of_cpus_is_counted() {
        for (text, expected) in [
            ("0\n", Some(1)),
            ("0-127\n", Some(128)),
            ("0-3,8,10-11\n", Some(7)),
            ("\n", None),
            ("0-", None),
            ("3-1", None),
            ("0-18446744073709551615", None),
            ("all", None),
        ] {
            assert_eq!(count(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_list_counts_cpus_that_this_process_may_not_use() {
        let directory = tempfile::tempdir().unwrap();
        let list = directory.path().join("online");
        std::fs::write(&list, "0-4095\n").unwrap();
        assert_eq!(online_by(&list), (4096, None));
        let (cpus, missing) = online_by(&directory.path().join("none"));
        let missing = missing.unwrap();
        let (capability, reason) = split_degradation(&missing);
        assert!(cpus > 0 && capability == CAPABILITY && reason.contains("No such file"), "{missing}");
        assert!(online().1.is_none(), "this machine has the list");
    }
}
