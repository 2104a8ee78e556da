//! Facts about workloads that only the node knows, not the API or the statistics.

use std::collections::HashMap;

use crate::workloads::{Outlook, Pod, Preference};

/// Marks by the UID of the cgroup.
#[derive(Debug, Default)]
pub struct Marks(HashMap<String, Mark>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark {
    /// `user.oomd_avoid`.
    pub preference: Preference,
    /// The reason why the agent never evicts the workload, if the pod itself does not show it.
    pub exempt: Option<&'static str>,
    /// What is known about its memory beyond its usage.
    pub outlook: Outlook,
}

impl Marks {
    pub fn set(&mut self, uid: String, mark: Mark) {
        self.0.insert(uid, mark);
    }

    /// Returns the marks of a pod; for a mirror pod those of its static pod.
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

    /// Returns the ranking, with the reason of each exemption, and the first victim.
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

    fn expected(ranking: &str, first: &str) -> (String, String) {
        (ranking.to_owned(), first.to_owned())
    }

    #[test]
    fn marks_of_the_node_change_the_ranking() {
        let (memory, corrected) = (Signal::MemoryAvailable, Semantics::Corrected);
        assert_eq!(judged(memory, corrected, None), expected("a, c (mirror pod), b", "a"));
        let mut marks = Marks::default();
        marks.set("1".to_owned(), Mark { preference: Preference::Avoid, ..Mark::default() });
        assert_eq!(judged(memory, corrected, Some(&marks)), expected("c (mirror pod), b, a", "b"));
        // A mirror pod has the marks of its static pod, but its own reason takes precedence.
        marks.set("3".to_owned(), Mark { preference: Preference::Avoid, exempt: Some("x"), ..Mark::default() });
        marks.set("2".to_owned(), Mark { exempt: Some("critical"), ..Mark::default() });
        assert_eq!(judged(memory, corrected, Some(&marks)), expected("b (critical), a, c (mirror pod)", "a"));
    }

    #[test]
    fn small_victims_are_passed_over_if_the_agent_does_so() {
        let (pids, marks) = (Signal::PidAvailable, Marks::default());
        assert_eq!(
            judged(pids, Semantics::Corrected, None),
            expected("a, c (mirror pod), b", "a"),
            "not on a file's word"
        );
        let little = "a, c (mirror pod), b (it would give back too little)";
        assert_eq!(judged(pids, Semantics::Corrected, Some(&marks)), expected(little, "a"));
        assert_eq!(judged(pids, Semantics::Kubelet, Some(&marks)), expected("a, c (mirror pod), b", "a"));
        let nothing = "a (it would give back too little), b (it would give back too little), c (mirror pod)";
        let disk = judged(Signal::NodeFsInodesFree, Semantics::Corrected, Some(&marks));
        assert_eq!(disk, expected(nothing, ""), "no workload has anything there");
    }
}
