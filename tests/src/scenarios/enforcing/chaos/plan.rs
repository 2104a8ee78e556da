//! The plan of one episode of chaos. The seed and the episode's number determine it.

use crate::cgroups::{PodSpec, Qos};

/// A sequence of numbers that a seed determines (SplitMix64).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64, episode: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ episode.wrapping_mul(0xD1B5_4A32_D192_ED03));
        random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> Option<T> {
        let index = usize::try_from(self.below(choices.len() as u64)).ok()?;
        choices.get(index).copied()
    }
}

/// How a bystander uses its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Private,
    Shared,
    /// A tmpfs that the kubelet mounts.
    Volume,
    /// Pages of a file on a disk.
    FilePages,
    /// Many processes.
    Forks,
}

/// A workload that does not grow.
#[derive(Debug, Clone)]
pub struct Bystander {
    pub label: String,
    pub spec: PodSpec,
    pub mib: u64,
    pub kind: Kind,
}

/// A workload that grows until it is killed.
#[derive(Debug, Clone)]
pub struct Leak {
    pub label: String,
    pub spec: PodSpec,
    /// MiB a second.
    pub rate: u64,
    pub in_volume: bool,
    /// A service of the host, which the configuration protects.
    pub is_protected: bool,
}

/// A fault that is caused beside the leaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Nothing,
    AgentKilled,
    Reload,
    ClockSet,
    DiskFull,
    ThousandCgroups,
    /// The process of the container runtime is stopped, or it continues if it is stopped already.
    RuntimeStopped,
}

#[derive(Debug, Clone)]
pub struct Episode {
    pub bystanders: Vec<Bystander>,
    pub leaks: Vec<Leak>,
    pub fault: Fault,
    /// MemAvailable in MiB at which the fault happens.
    pub fault_below_mib: u64,
    /// The time from a pod's end to the end of its volumes.
    pub clean_up_ms: u64,
}

impl Episode {
    pub fn new(seed: u64, number: u64) -> Self {
        use Fault::{AgentKilled, ClockSet, DiskFull, Nothing, Reload, RuntimeStopped, ThousandCgroups};
        use Kind::{FilePages, Forks, Private, Shared, Volume};
        let mut random = Random::new(seed, number);
        let bystanders = (0..random.below(7)).map(|index| {
            let mib = random.one_of(&[1, 2, 3, 3, 5, 10, 20, 30, 50]).unwrap_or(1);
            let qos = random.one_of(&[Qos::BestEffort, Qos::BestEffort, Qos::Burstable, Qos::Guaranteed]);
            let spec = match qos.unwrap_or(Qos::BestEffort) {
                Qos::BestEffort => PodSpec::best_effort(),
                // Half of the Burstable pods use more than they requested.
                Qos::Burstable => PodSpec::burstable(if random.below(2) == 0 { mib + 32 } else { mib / 2 }),
                Qos::Guaranteed => PodSpec::guaranteed(mib + 32),
            };
            let kind = random.one_of(&[Private, Private, Shared, Volume, FilePages, Forks]).unwrap_or(Private);
            Bystander { label: format!("bystander-{index}"), spec, mib, kind }
        });
        let bystanders = bystanders.collect();
        let count = random.one_of(&[0, 1, 1, 1, 1, 1, 1, 1, 2, 2]).unwrap_or(1);
        let leaks = (0..count).map(|index| {
            let is_protected = random.below(8) == 0;
            Leak {
                label: if is_protected {
                    format!("system.slice/leak-{index}.service")
                } else {
                    format!("leak-{index}")
                },
                spec: if random.below(2) == 0 { PodSpec::best_effort() } else { PodSpec::burstable(16) },
                rate: random.one_of(&[20, 40, 60, 80, 120]).unwrap_or(60),
                in_volume: random.below(5) == 0,
                is_protected,
            }
        });
        let leaks = leaks.collect();
        let faults =
            [Nothing, Nothing, Nothing, AgentKilled, Reload, ClockSet, DiskFull, ThousandCgroups, RuntimeStopped];
        Self {
            bystanders,
            leaks,
            fault: random.one_of(&faults).unwrap_or(Nothing),
            fault_below_mib: random.one_of(&[1000, 170, 130, 102]).unwrap_or(1000),
            clean_up_ms: random.below(1500),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_reproduces_an_episode_and_another_differs() {
        let told = |seed, number| format!("{:?}", Episode::new(seed, number));
        assert_eq!(told(7, 3), told(7, 3));
        assert_ne!(told(7, 3), told(7, 4));
        assert_ne!(told(7, 3), told(8, 3));
    }

    #[test]
    fn every_fault_and_kind_occurs_within_a_hundred_episodes() {
        let episodes: Vec<Episode> = (0..100).map(|number| Episode::new(1, number)).collect();
        let faults: std::collections::HashSet<String> =
            episodes.iter().map(|episode| format!("{:?}", episode.fault)).collect();
        assert_eq!(faults.len(), 7);
        assert!(episodes.iter().any(|episode| episode.leaks.is_empty()));
        assert!(episodes.iter().any(|episode| episode.leaks.iter().any(|leak| leak.is_protected)));
    }
}
