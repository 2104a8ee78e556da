//! A world as a person would write it down: the node, its pods, how they grow, and what goes wrong when. All amounts are in MiB, all times in
//! seconds since the beginning.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Plan {
    pub seed: u64,
    pub capacity: f64,
    pub threshold: f64,
    pub minimum_reclaim: f64,
    /// What is available at the beginning.
    pub available: f64,
    /// How long the world lasts.
    pub seconds: f64,
    pub ranking: Order,
    pub max_per_minute: u32,
    /// The evictions that the shortage had before the world begins, and how many of them bought too little.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history: Option<(u32, u32)>,
    pub pods: Vec<Pod>,
    /// What the kernel, or a daemon that is no candidate, leaks per second, and from when on.
    pub other_leak: (f64, f64),
    /// The most by which a sample of the signal is wrong.
    pub error: f64,
    /// The machine stands still from this time on for so long.
    pub standstills: Vec<(f64, f64)>,
    /// The agent ends at this time, and starts again so much later.
    pub restarts: Vec<(f64, f64)>,
    /// Another program kills this pod.
    pub other_kills: Vec<(f64, usize)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Order {
    #[default]
    Qos,
    Kubernetes,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    pub name: String,
    pub class: Class,
    pub priority: i32,
    pub role: Role,
    pub request: f64,
    /// What its end gives back, at the beginning.
    pub memory: f64,
    /// Its file pages, and how many it reads per second. They stay available.
    pub cache: f64,
    pub cache_growth: f64,
    pub growth: Curve,
    /// It starts at this time, and takes so long to fill its memory; `None` if it was there before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts: Option<(f64, f64)>,
    /// After a kill its memory begins to come back so much later; `None` never.
    pub dies_after: Option<f64>,
    /// And it takes so long to come back.
    pub dies_for: f64,
}

impl Default for Pod {
    fn default() -> Self {
        Self {
            name: String::new(),
            class: Class::BestEffort,
            priority: 0,
            role: Role::Pod,
            request: 0.0,
            memory: 0.0,
            cache: 0.0,
            cache_growth: 0.0,
            growth: Curve::Idle,
            starts: None,
            dies_after: Some(0.02),
            dies_for: 0.05,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Class {
    BestEffort,
    Burstable,
    Guaranteed,
}

/// What the workload is to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    Pod,
    DaemonSet,
    /// A service that may be evicted only as a culprit.
    Service,
    /// It is never evicted.
    Protected,
}

/// How the memory of a workload changes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Curve {
    Idle,
    /// Grows without end.
    Leak {
        rate: f64,
        from: f64,
    },
    /// Grows for a while.
    Burst {
        rate: f64,
        from: f64,
        lasts: f64,
    },
    /// Grows until it uses what it requested: the promise that the scheduler made.
    WarmUp {
        rate: f64,
        from: f64,
    },
    /// Grows by a step each time.
    Forks {
        step: f64,
        every: f64,
        from: f64,
    },
    /// Grows for a period, gives all of it back, and begins anew.
    Sawtooth {
        rate: f64,
        period: f64,
        from: f64,
    },
}

impl Plan {
    /// Returns what the kernel, or a daemon that is no candidate, leaks per second at this time.
    pub fn other_leak_at(&self, seconds: f64) -> f64 {
        let (rate, from) = self.other_leak;
        if seconds >= from { rate } else { 0.0 }
    }

    /// Returns by how much the kernel's counters may jump, as the agent assumes.
    pub fn noise(&self) -> f64 {
        (self.capacity * 0.008).min(8.0)
    }
}

impl Pod {
    /// Returns the memory that the pod's end would give back after so many seconds.
    pub fn memory_at(&self, seconds: f64) -> f64 {
        let since = |from: f64| (seconds - from).max(0.0);
        let grown = match self.growth {
            Curve::Idle => 0.0,
            Curve::Leak { rate, from } => rate * since(from),
            Curve::Burst { rate, from, lasts } => rate * since(from).min(lasts),
            Curve::WarmUp { rate, from } => (rate * since(from)).min((self.request - self.memory).max(0.0)),
            Curve::Forks { step, every, from } => step * (since(from) / every).floor(),
            Curve::Sawtooth { rate, period, from } => rate * (since(from) % period),
        };
        self.memory * self.started(seconds) + grown
    }

    /// Returns which share of its first memory the pod has filled.
    fn started(&self, seconds: f64) -> f64 {
        self.starts.map_or(1.0, |(at, takes)| ((seconds - at) / takes.max(0.01)).clamp(0.0, 1.0))
    }

    pub fn is_started(&self, seconds: f64) -> bool {
        self.starts.is_none_or(|(at, _)| seconds >= at)
    }

    /// Returns the same for a workload that never gives memory back by itself.
    pub fn most_until(&self, seconds: f64) -> f64 {
        match self.growth {
            Curve::Sawtooth { rate, period, from } => {
                self.memory * self.started(seconds) + rate * (seconds - from).clamp(0.0, period)
            }
            _ => self.memory_at(seconds),
        }
    }

    pub fn cache_at(&self, seconds: f64) -> f64 {
        self.cache + self.cache_growth * seconds
    }

    pub const fn is_idle(&self) -> bool {
        matches!(self.growth, Curve::Idle) && self.starts.is_none()
    }
}
