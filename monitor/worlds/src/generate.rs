//! Makes a world from a seed. Each kind of shortage that nodes have is frequent, and so are the mixtures of them.

use crate::plan::{Class, Curve, Order, Plan, Pod, Role};
use crate::random::Random;

/// The largest node has 12 TiB, the smallest 512 MiB.
const CAPACITY: (f64, f64) = (512.0, 12.0 * 1_048_576.0);

/// What uses up the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    OneLeak,
    SomeLeaks,
    /// Many workloads grow slowly, and no one alone is to blame.
    Swarm,
    /// A workload within its request fills up what was promised to it.
    WarmUp,
    Burst,
    Forks,
    Sawtooth,
    /// The kernel, or a daemon that is no candidate.
    Other,
    Protected,
    DaemonSet,
    Service,
}

const CAUSES: [Cause; 14] = [
    Cause::OneLeak,
    Cause::OneLeak,
    Cause::OneLeak,
    Cause::SomeLeaks,
    Cause::Swarm,
    Cause::WarmUp,
    Cause::WarmUp,
    Cause::Burst,
    Cause::Forks,
    Cause::Sawtooth,
    Cause::Other,
    Cause::Protected,
    Cause::DaemonSet,
    Cause::Service,
];

/// Returns the world of this number in the series of a seed.
pub fn world(series: u64, number: u64) -> Plan {
    let seed = Random::seeded(series ^ number.wrapping_mul(0xA076_1D64_78BD_642F)).next();
    Maker { random: Random::seeded(seed) }.make(seed)
}

struct Maker {
    random: Random,
}

impl Maker {
    fn make(&mut self, seed: u64) -> Plan {
        let capacity = self.random.scaled(CAPACITY.0, CAPACITY.1).round();
        let usual = self.random.one(&[100.0, 100.0, 500.0, capacity * 0.01, capacity * 0.05]);
        let threshold = f64::max(64.0, usual.min(capacity * 0.2)).round();
        // From a slow leak to one that uses up the threshold in a second and a half.
        let rate = self.random.scaled(threshold * 0.002, threshold * 0.7);
        let available = threshold + rate * self.random.between(1.5, 8.0);
        let mut plan = Plan {
            seed,
            capacity,
            threshold,
            available,
            minimum_reclaim: if self.random.happens(0.2) { (threshold * 0.3).round() } else { 0.0 },
            seconds: self.random.one(&[20.0, 30.0, 30.0, 45.0]),
            ranking: self.random.one(&[Order::Qos, Order::Kubernetes]),
            max_per_minute: self.random.one(&[6, 6, 1000]),
            error: if self.random.happens(0.5) {
                self.random.between(0.0, f64::min(6.0, threshold * 0.03))
            } else {
                0.0
            },
            ..Plan::default()
        };
        if self.random.happens(0.25) {
            let evictions = 1 + self.random.below(5);
            let poor = self.random.below(evictions + 1);
            plan.history = Some((small(evictions), small(poor)));
            plan.seconds = self.random.one(&[plan.seconds, 60.0]);
        }
        self.fill(&mut plan);
        self.cause(&mut plan, rate);
        if self.random.happens(0.15) {
            self.cause(&mut plan, rate * 0.5);
        }
        if self.random.happens(0.3) {
            self.starting(&mut plan);
        }
        self.events(&mut plan);
        plan
    }

    /// Adds pods that start about when the threshold is met, at about the same time.
    fn starting(&mut self, plan: &mut Plan) {
        let at = self.random.between(1.0, 8.0);
        let together = plan.available * self.random.between(0.1, 0.9);
        let count = 1 + self.random.below(6);
        for _ in 0..count {
            let memory = together / f64::from(small(count)) * self.random.between(0.2, 1.0);
            let mut pod = self.pod(format!("new-{}", plan.pods.len()), memory);
            pod.starts = Some((at + self.random.between(0.0, 1.0), self.random.scaled(0.05, 2.0)));
            plan.pods.push(pod);
        }
    }

    fn fill(&mut self, plan: &mut Plan) {
        let count = match self.random.below(20) {
            0..14 => 1 + self.random.below(16),
            14..19 => 16 + self.random.below(100),
            _ => 116 + self.random.below(885),
        };
        let room = (plan.capacity - plan.available) * self.random.between(0.3, 0.95);
        let share = room / f64::from(small(count));
        let is_of_caches = self.random.happens(0.15);
        for number in 0..count {
            let memory = self.random.scaled(f64::min(2.0, share * 0.5), share).max(0.5);
            let pod = self.pod(format!("pod-{number}"), memory);
            plan.pods.push(pod);
            if let Some(pod) = plan.pods.last_mut().filter(|_| is_of_caches) {
                pod.cache = (plan.capacity / 50.0).min(2_048.0);
                pod.cache_growth = if self.random.happens(0.3) { self.random.between(0.0, 30.0) } else { 0.0 };
            }
        }
    }

    fn pod(&mut self, name: String, memory: f64) -> Pod {
        let class = self.random.one(&[Class::BestEffort, Class::Burstable, Class::Burstable, Class::Guaranteed]);
        let request = match class {
            Class::BestEffort => 0.0,
            Class::Burstable => memory * self.random.between(0.3, 1.6),
            Class::Guaranteed => memory * self.random.between(1.0, 3.0),
        };
        let (dies_after, dies_for) = match self.random.below(20) {
            0 => (None, 0.0),
            1..3 => (Some(self.random.between(0.1, 1.5)), self.random.between(0.1, 3.0)),
            _ => (Some(self.random.between(0.005, 0.05)), self.random.between(0.01, 0.2)),
        };
        let priority = self.random.one(&[0, 0, 0, 1_000, 1_000_000]);
        Pod { name, class, priority, request, memory, dies_after, dies_for, ..Pod::default() }
    }

    /// Adds what uses up the memory, so many MiB per second in all.
    fn cause(&mut self, plan: &mut Plan, rate: f64) {
        let cause = self.random.one(&CAUSES);
        let is_new = cause != Cause::Swarm && self.random.happens(0.2);
        let from = if is_new { self.random.between(1.0, 6.0) } else { self.random.between(0.0, 1.0) };
        let size = f64::max(rate * 3.0, plan.threshold * self.random.scaled(0.05, 3.0));
        let mut add = |maker: &mut Self, name: &str, rate: f64, growth: Curve, role: Role| {
            let mut pod = maker.pod(format!("{name}-{}", plan.pods.len()), size.max(rate));
            if role == Role::Service || role == Role::Protected {
                (pod.class, pod.request) = (Class::BestEffort, 0.0);
            }
            // What grows without end grows above its request.
            if pod.class == Class::Guaranteed {
                (pod.class, pod.request) = (Class::Burstable, pod.memory * 0.8);
            }
            (pod.growth, pod.role) = (growth, role);
            if is_new {
                (pod.memory, pod.starts) = (1.0, Some((from, 0.0)));
                pod.request = pod.request.min(rate * maker.random.between(0.0, 2.0));
            }
            plan.pods.push(pod);
        };
        let leak = |rate: f64| Curve::Leak { rate, from };
        match cause {
            Cause::OneLeak => add(self, "leak", rate, leak(rate), Role::Pod),
            Cause::SomeLeaks => {
                let count = 2 + self.random.below(3);
                for _ in 0..count {
                    let own = rate / f64::from(small(count)) * self.random.between(0.6, 1.4);
                    add(self, "leak", own, leak(own), Role::Pod);
                }
            }
            Cause::Swarm => {
                let count = 8 + self.random.below(200);
                let own = rate / f64::from(small(count));
                for _ in 0..count {
                    add(self, "swarm", own, leak(own * 1.0), Role::Pod);
                }
            }
            Cause::WarmUp => {
                let mut pod = self.pod(format!("warm-{}", plan.pods.len()), size);
                pod.class = self.random.one(&[Class::Burstable, Class::Guaranteed]);
                pod.request = size * self.random.between(2.0, 6.0);
                pod.growth = Curve::WarmUp { rate, from };
                plan.pods.push(pod);
            }
            Cause::Burst => {
                let lasts = self.random.between(2.0, 12.0);
                add(self, "burst", rate, Curve::Burst { rate, from, lasts }, Role::Pod);
            }
            Cause::Forks => {
                let every = self.random.between(0.05, 0.6);
                add(self, "forks", rate, Curve::Forks { step: rate * every, every, from }, Role::Pod);
            }
            Cause::Sawtooth => {
                let period = self.random.between(2.0, 15.0);
                add(self, "saw", rate, Curve::Sawtooth { rate, period, from }, Role::Pod);
            }
            Cause::Other => plan.other_leak = (rate, from),
            Cause::Protected => add(self, "protected", rate, leak(rate), Role::Protected),
            Cause::DaemonSet => add(self, "daemon", rate, leak(rate), Role::DaemonSet),
            Cause::Service => add(self, "service", rate, leak(rate), Role::Service),
        }
    }

    fn events(&mut self, plan: &mut Plan) {
        let at = |maker: &mut Self| maker.random.between(1.0, 15.0);
        if self.random.happens(0.1) {
            plan.standstills.push((at(self), self.random.scaled(0.1, 5.0)));
        }
        if self.random.happens(0.1) {
            plan.restarts.push((at(self), self.random.scaled(0.05, 2.0)));
        }
        if self.random.happens(0.08) {
            plan.other_kills.push((at(self), self.random.below(plan.pods.len())));
        }
    }
}

fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
