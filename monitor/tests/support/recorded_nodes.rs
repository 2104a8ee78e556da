//! Nodes whose memory runs out, to be recorded.

use super::node_of_files::{GIB, MIB, Pod};

pub const THRESHOLD: &str = "500Mi";
const THRESHOLD_BYTES: i64 = 500 * MIB;
/// The threshold is crossed after about so many milliseconds.
const UNTIL_CROSSED: i64 = 4_300;

/// A pod and the bytes by which it grows in a second.
#[derive(Debug, Clone)]
pub struct GrowingPod {
    pub pod: Pod,
    pub rate: i64,
}

#[derive(Debug)]
pub struct Growing {
    pub name: String,
    all: Vec<GrowingPod>,
    /// The rest of the configuration.
    pub rest: &'static str,
}

impl Growing {
    fn of(name: &str, all: Vec<GrowingPod>) -> Self {
        Self { name: name.to_owned(), all, rest: "" }
    }

    pub fn pods(&self) -> Vec<Pod> {
        self.all.iter().map(|growing| growing.pod.clone()).collect()
    }

    pub fn rates(&self) -> impl Iterator<Item = i64> {
        self.all.iter().map(|growing| growing.rate)
    }

    pub fn available(&self) -> i64 {
        THRESHOLD_BYTES + self.rates().sum::<i64>() * UNTIL_CROSSED / 1_000
    }

    /// Returns the agent's configuration without the paths of its machine.
    pub fn configuration(&self) -> String {
        super::agent::configuration(&format!("evictionHard: {{memory.available: {THRESHOLD}}}\n{}", self.rest))
    }
}

fn still(name: &str, qos: &'static str, memory: i64, request: i64) -> GrowingPod {
    GrowingPod { pod: Pod::new(name, qos, memory, request), rate: 0 }
}

fn leak(name: &str, qos: &'static str, memory: i64, request: i64, rate: i64) -> GrowingPod {
    GrowingPod { rate, ..still(name, qos, memory, request) }
}

/// The nodes that show one rule each.
pub fn named() -> Vec<Growing> {
    let idle = |count: usize, memory: i64| -> Vec<GrowingPod> {
        (0..count).map(|index| still(&format!("idle{index}"), "BestEffort", memory, 0)).collect()
    };
    let with = |mut all: Vec<GrowingPod>, more: GrowingPod| {
        all.push(more);
        all
    };
    let swarm = (0..8).map(|index| leak(&format!("grower{index}"), "Burstable", 200 * MIB, 64 * MIB, 12 * MIB));
    let protected = with(idle(2, 600 * MIB), leak("named", "BestEffort", GIB, 0, 40 * MIB));
    vec![
        Growing::of("bystanders", with(idle(5, 40 * MIB), leak("leaker", "Burstable", GIB, 512 * MIB, 60 * MIB))),
        Growing::of("warm-up", with(idle(2, 2 * GIB), leak("database", "Burstable", GIB, 4 * GIB, 60 * MIB))),
        Growing::of("swarm", with(swarm.collect(), still("giant", "Burstable", 3 * GIB, 2 * GIB))),
        Growing { rest: "protected: [\"*podnamed.slice\"]\n", ..Growing::of("protected", protected) },
    ]
}

/// Returns a node that the seed determines.
pub fn by_seed(seed: u64) -> Growing {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let count = 2 + random.below(12);
    let mut all: Vec<GrowingPod> = (0..count)
        .map(|index| {
            let qos = if random.below(2) == 0 { "BestEffort" } else { "Burstable" };
            let memory = (4 + random.below(1_500)) * MIB;
            let request = if qos == "Burstable" { (1 + random.below(1_500)) * MIB } else { 0 };
            let rate = if random.below(4) == 0 { (1 + random.below(80)) * MIB } else { 0 };
            leak(&format!("pod{index}"), qos, memory, request, rate)
        })
        .collect();
    // Memory has to run out.
    all.push(leak("last", "Burstable", 100 * MIB, 50 * MIB, (2 + random.below(100)) * MIB));
    Growing::of(&format!("seed{seed}"), all)
}

/// The generator xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: i64) -> i64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        i64::try_from(self.0 >> 1).unwrap() % bound
    }
}
