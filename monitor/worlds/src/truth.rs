//! The whole truth about a running world: what each workload holds, and what is available, at any time up to now.

use crate::plan::{Plan, Pod};

#[derive(Debug)]
pub struct Truth<'p> {
    pub plan: &'p Plan,
    /// When each pod was killed.
    killed: Vec<Option<f64>>,
    /// The pods whose memory changes, or that were killed.
    changing: Vec<usize>,
}

impl<'p> Truth<'p> {
    pub fn of(plan: &'p Plan) -> Self {
        let changing = (0..plan.pods.len()).filter(|pod| !plan.pods[*pod].is_idle()).collect();
        Self { plan, killed: vec![None; plan.pods.len()], changing }
    }

    pub fn pod(&self, pod: usize) -> &'p Pod {
        &self.plan.pods[pod]
    }

    pub fn kill(&mut self, pod: usize, now: f64) {
        if self.killed[pod].is_none() {
            self.killed[pod] = Some(now);
            if self.plan.pods[pod].is_idle() {
                self.changing.push(pod);
            }
        }
    }

    pub fn killed(&self, pod: usize) -> Option<f64> {
        self.killed[pod]
    }

    pub fn lives(&self, pod: usize) -> bool {
        self.killed[pod].is_none()
    }

    /// Returns what the pod holds. Its growth ends with its kill, and its memory comes back as planned.
    pub fn holds(&self, pod: usize, now: f64) -> f64 {
        let plan = self.pod(pod);
        match self.killed[pod].filter(|killed| now >= *killed) {
            None => plan.memory_at(now),
            Some(killed) => plan.memory_at(killed) * (1.0 - come_back(plan, now - killed)),
        }
    }

    /// Returns whether the processes of a killed pod are gone.
    pub fn is_gone(&self, pod: usize, now: f64) -> bool {
        let gone = |killed: f64| self.pod(pod).dies_after.is_some_and(|after| now >= killed + after);
        self.killed[pod].is_some_and(gone)
    }

    pub fn available(&self, now: f64) -> f64 {
        let grown = |pod: &usize| self.holds(*pod, now) - self.pod(*pod).memory_at(0.0);
        let grown: f64 = self.changing.iter().map(grown).sum();
        let (rate, from) = self.plan.other_leak;
        self.plan.available - grown - rate * (now - from).max(0.0)
    }

    /// Returns the larger fall over one and over ten seconds.
    pub fn fall(&self, now: f64) -> f64 {
        self.fall_over(1.0, now).max(self.fall_over(10.0, now))
    }

    pub fn fall_over(&self, span: f64, now: f64) -> f64 {
        let passed = now.min(span).max(0.05);
        (self.available(now - passed) - self.available(now)) / passed
    }

    /// Returns how much is used up per second at present, without what comes back.
    pub fn used(&self, now: f64) -> f64 {
        let living = self.changing.iter().filter(|pod| self.lives(**pod));
        let grown: f64 = living.map(|pod| self.growth(*pod, 0.4, now).max(0.0)).sum();
        grown + self.plan.other_leak_at(now)
    }

    /// Returns by how much the pod grew per second over the last `span` seconds.
    pub fn growth(&self, pod: usize, span: f64, now: f64) -> f64 {
        let passed = now.min(span).max(0.05);
        (self.holds(pod, now) - self.holds(pod, now - passed)) / passed
    }
}

/// Returns which share of the memory has come back so long after the kill.
pub fn come_back(pod: &Pod, since: f64) -> f64 {
    let Some(after) = pod.dies_after else { return 0.0 };
    ((since - after) / pod.dies_for.max(1e-3)).clamp(0.0, 1.0)
}
