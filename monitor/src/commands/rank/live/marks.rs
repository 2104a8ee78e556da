//! What this node itself knows of its workloads, beyond what the API and the statistics say of pods.

use std::collections::HashMap;

use crate::workloads::{Pod, Preference};

/// By the UID of the cgroup.
#[derive(Debug, Default)]
pub struct Marks(HashMap<String, Mark>);

/// Of one workload.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark {
    /// `user.oomd_avoid`.
    pub preference: Preference,
    /// Why the agent never evicts it, where its pod does not say so itself.
    pub exempt: Option<&'static str>,
}

impl Marks {
    /// Takes down what is said of a workload.
    pub fn set(&mut self, uid: String, mark: Mark) {
        self.0.insert(uid, mark);
    }

    /// What is said of a pod; of a mirror, what is said of the pod that it stands for.
    pub fn of(&self, pod: &Pod) -> Mark {
        let of_mirrored = || self.0.get(pod.mirrored_uid()?);
        self.0.get(&pod.metadata.uid).or_else(of_mirrored).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::rank::verdict::{Question, judge};
    use crate::config::{Policy, Semantics};
    use crate::eviction::Layout;
    use crate::units::Signal;
    use crate::workloads::Summary;

    const PODS: &str = r#"[{"metadata": {"name": "a", "namespace": "n", "uid": "1"}},
        {"metadata": {"name": "b", "namespace": "n", "uid": "2"}},
        {"metadata": {"name": "c", "namespace": "n", "uid": "3-mirror", "annotations": {"kubernetes.io/config.mirror": "3"}}}]"#;
    /// Memory and process ids of each; `c` is the mirror of a static pod.
    const SUMMARY: &str = r#"{"node": {"rlimit": {"maxpid": 1000, "curproc": 990}}, "pods": [
        {"podRef": {"uid": "1"}, "memory": {"workingSetBytes": 100}, "process_stats": {"process_count": 500}},
        {"podRef": {"uid": "2"}, "memory": {"workingSetBytes": 50}, "process_stats": {"process_count": 3}},
        {"podRef": {"uid": "3"}, "memory": {"workingSetBytes": 70}, "process_stats": {"process_count": 9}}]}"#;

    /// Who stands where, with why it would not go; and who goes first.
    fn judged(signal: Signal, semantics: Semantics, marks: Option<&Marks>) -> (String, String) {
        let (pods, summary): (Vec<Pod>, Summary) =
            (serde_json::from_str(PODS).unwrap(), serde_json::from_str(SUMMARY).unwrap());
        let policy = Policy { semantics, ..Policy::default() };
        let verdict =
            judge(&policy, Question { signal, layout: Layout::Single, pods: &pods, summary: &summary, marks });
        let row = |row: &crate::commands::rank::verdict::Row<'_>| {
            let why = row.exempt.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
            format!("{}{why}", row.ranked.candidate.pod.metadata.name)
        };
        let rows: Vec<String> = verdict.ranking.iter().map(row).collect();
        let first = verdict.first.and_then(|first| verdict.ranking.get(first));
        let first = first.map(|row| row.ranked.candidate.pod.metadata.name.clone()).unwrap_or_default();
        (rows.join(", "), first)
    }

    fn told(ranking: &str, first: &str) -> (String, String) {
        (ranking.to_owned(), first.to_owned())
    }

    #[test]
    fn what_the_node_says_counts_beside_the_pods() {
        let (memory, corrected) = (Signal::MemoryAvailable, Semantics::Corrected);
        assert_eq!(judged(memory, corrected, None), told("a, c (mirror pod), b", "a"));
        let mut marks = Marks::default();
        marks.set("1".to_owned(), Mark { preference: Preference::Avoid, exempt: None });
        assert_eq!(judged(memory, corrected, Some(&marks)), told("c (mirror pod), b, a", "b"));
        // A mirror has the marks of the pod that it stands for, and its own reason first.
        marks.set("3".to_owned(), Mark { preference: Preference::Avoid, exempt: Some("x") });
        marks.set("2".to_owned(), Mark { preference: Preference::None, exempt: Some("critical") });
        assert_eq!(judged(memory, corrected, Some(&marks)), told("b (critical), a, c (mirror pod)", "a"));
    }

    #[test]
    fn who_would_give_back_too_little_is_passed_over_where_the_agent_does_that() {
        let (pids, marks) = (Signal::PidAvailable, Marks::default());
        assert_eq!(judged(pids, Semantics::Corrected, None), told("a, c (mirror pod), b", "a"), "not on a file's word");
        let little = "a, c (mirror pod), b (it would give back too little)";
        assert_eq!(judged(pids, Semantics::Corrected, Some(&marks)), told(little, "a"));
        assert_eq!(judged(pids, Semantics::Kubelet, Some(&marks)), told("a, c (mirror pod), b", "a"));
        let nothing = "a (it would give back too little), b (it would give back too little), c (mirror pod)";
        let disk = judged(Signal::NodeFsInodesFree, Semantics::Corrected, Some(&marks));
        assert_eq!(disk, told(nothing, ""), "nobody has anything there");
    }
}
