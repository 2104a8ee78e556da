//! The boots of the suite, their order, and what they add to its outcome.

use std::iter::once_with;

use anyhow::{Context as _, Result};

use super::Tally;
use super::lanes::{self, Lane};
use super::supplies::Supplies;
use crate::arch::Arch;
use crate::build;
use crate::console::Console;
use crate::outcome::Outcome;
use crate::paths::Workspace;
use crate::setup::Part;
use crate::setup::kernel::Series;
use crate::vm::scenario::{Boot, InTest};
use crate::vm::{self, Cgroup, KernelChoice, Lab, Plan, Runtime, Verdict};

/// All boots in the order of the table. The reference boot measures durations, so nothing runs beside it. The others check
/// behaviour; the longest comes first. In the boots without containers the agent races workloads that take memory as fast as the
/// guest can, and needs a CPU as soon as it wakes. The boot with containers has generous time limits, so it yields the CPUs to
/// them.
const BOOTS: [(Lane, Wanted); 5] = [
    (Lane::Alone, Wanted(Series::V6_12, Cgroup::V2, Boot::Reference, Runtime::Containerd)),
    (Lane::Beside, Wanted(Series::V6_12, Cgroup::V2, Boot::Remainder, Runtime::Containerd)),
    (Lane::Beside, Wanted(Series::V6_12, Cgroup::V2, Boot::Containers, Runtime::Containerd)),
    (Lane::Beside, Wanted(Series::V6_1, Cgroup::V1, Boot::Contrast, Runtime::Containerd)),
    (Lane::Beside, Wanted(Series::V6_1, Cgroup::V2, Boot::Between, Runtime::Containerd)),
];

/// The boots that only a long test has. A control plane needs both CPUs.
const LONG: [(Lane, Wanted); 5] = [
    (Lane::Alone, Wanted(Series::V6_12, Cgroup::V2, Boot::Containers, Runtime::Containerd2)),
    (Lane::Alone, Wanted(Series::V6_12, Cgroup::V2, Boot::Cluster, Runtime::Containerd2)),
    (Lane::Alone, Wanted(Series::V6_12, Cgroup::V2, Boot::Cluster, Runtime::Containerd)),
    (Lane::Alone, Wanted(Series::V6_12, Cgroup::V2, Boot::Cluster, Runtime::Crio)),
    (Lane::Alone, Wanted(Series::V6_1, Cgroup::V1, Boot::Cluster, Runtime::Containerd)),
];

/// Returns the boots of a test.
fn boots(is_long: bool) -> Vec<(Lane, Wanted)> {
    let long = LONG.into_iter().filter(|(_, wanted)| wanted.left_out(is_long).is_none());
    BOOTS.into_iter().chain(long).collect()
}

#[derive(Debug, Clone, Copy)]
struct Wanted(Series, Cgroup, Boot, Runtime);

impl Wanted {
    fn label(self) -> String {
        let Self(series, cgroup, boot, runtime) = self;
        vm::label(&KernelChoice::Series(series), boot.guest(), runtime, cgroup)
    }

    fn plan(self, is_long: bool) -> Result<Plan> {
        let Self(series, cgroup, boot, runtime) = self;
        Plan::for_test(series, cgroup, boot, runtime, is_long)
    }

    /// Returns why a boot of the long test is left out.
    fn left_out(self, is_long: bool) -> Option<&'static str> {
        let Self(_, _, boot, runtime) = self;
        match (is_long, boot) {
            (false, _) => Some("only with --long"),
            (true, Boot::Cluster) => vm::kubernetes::unset(runtime),
            (true, _) => None,
        }
    }

    /// Returns the names of the scenarios.
    fn names(self) -> Result<Vec<&'static str>> {
        Ok(self.plan(true)?.requests.iter().map(|request| request.entry.name).collect())
    }
}

/// Returns the parts that only some boots need, each once.
pub fn parts(is_long: bool) -> Vec<Part> {
    let mut parts = Vec::new();
    // A plan that cannot be made needs no parts. Its boot reports the error.
    for part in boots(is_long).iter().filter_map(|(_, wanted)| wanted.plan(is_long).ok()).flat_map(|plan| plan.parts())
    {
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    parts
}

/// Does all boots and counts their outcomes.
pub fn run(workspace: &Workspace, supplies: &Supplies, is_long: bool, tally: &mut Tally) -> Vec<Verdict> {
    // A missing part of a single boot fails only that boot.
    let lab = match supplies.check_common().and_then(|()| Lab::open(workspace, Arch::host(), &[])) {
        Ok(lab) => lab,
        Err(error) => {
            tally.fail(format!("setting the VM up: {error:#}"));
            return Vec::new();
        }
    };
    for (_, wanted) in LONG {
        if let Some(reason) = wanted.left_out(is_long) {
            let names = wanted.names().map_or_else(|error| format!("{error:#}"), |names| names.join(", "));
            tally.skip(format!("VM {}: {names}: {reason}", wanted.label()));
        }
    }
    let boots = boots(is_long);
    let outcomes = lanes::run(&boots, |lane, wanted| {
        let console = match lane {
            Lane::Alone => Console::alone(),
            Lane::Beside => Console::beside_others(&wanted.label()),
        };
        let verdict = wanted.plan(is_long).and_then(|mut plan| {
            plan.yields = wanted.2 == Boot::Containers;
            supplies.check(&plan.parts()).context("setting it up")?;
            lab.boot(&plan, &console)
        });
        // The error is printed now; the tally repeats it when the other lane has ended.
        if let Err(error) = &verdict {
            console.say(format_args!("FAILED {error:#}"));
        }
        verdict
    });
    let outcomes = boots.iter().zip(outcomes).map(|((lane, wanted), verdict)| {
        (wanted.label(), verdict.map(|verdict| once_more(&lab, *lane, wanted.plan(is_long), verdict)))
    });
    let packed = once_with(|| ("packed".to_owned(), packed(workspace, &lab, supplies))).take(usize::from(is_long));
    count(outcomes.chain(packed), tally)
}

/// Does the first boot with the agent that packages and images have: compiled for size, it keeps the same promises.
fn packed(workspace: &Workspace, lab: &Lab<'_>, supplies: &Supplies) -> Result<Verdict> {
    let (lane, wanted) = BOOTS[0];
    let mut plan = wanted.plan(false)?;
    supplies.check(&plan.parts()).context("setting it up")?;
    let agent = build::packed(workspace, plan.arch)?;
    build::check_size(&agent)?;
    plan.agent = Some(agent);
    let verdict = lab.boot(&plan, &Console::alone())?;
    Ok(once_more(lab, lane, Ok(plan), verdict))
}

/// Runs the failed scenarios once more, alone: two concurrent guests share two CPUs, and half of the scenarios have limits of
/// some milliseconds. A scenario of the boot that already ran alone is repeated only if it measures a cost, because other work on
/// this machine can only increase a cost.
fn once_more(lab: &Lab<'_>, lane: Lane, plan: Result<Plan>, verdict: Verdict) -> Verdict {
    let Ok(plan) = plan else { return verdict };
    let is_cost = |name: &&str| {
        plan.requests.iter().any(|request| request.entry.name == *name && request.entry.in_test == InTest::Reference)
    };
    let failed: Vec<&str> = verdict.failed().into_iter().filter(|name| lane != Lane::Alone || is_cost(name)).collect();
    if failed.is_empty() {
        return verdict;
    }
    let plan = plan.only(&failed);
    println!("RETRY: {}: {} once more, with nothing beside it", verdict.label, failed.join(", "));
    verdict.problems.iter().for_each(|problem| println!("  first attempt: {problem}"));
    match lab.boot(&plan, &Console::alone()) {
        Ok(later) => verdict.overruled_by(later),
        Err(error) => {
            println!("FAILED {error:#}");
            verdict
        }
    }
}

/// Counts the outcomes of all boots, in the order of the table. A boot without a verdict is one failure.
fn count(outcomes: impl Iterator<Item = (String, Result<Verdict>)>, tally: &mut Tally) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for (label, outcome) in outcomes {
        let verdict = match outcome {
            Ok(verdict) => verdict,
            Err(error) => {
                tally.fail(format!("VM {label}: {error:#}"));
                continue;
            }
        };
        tally.counts.passed += verdict.counts.passed;
        for run in &verdict.runs {
            let story = format!("VM {label}: {}: {}", run.name, run.reason);
            match run.outcome {
                Outcome::Pass => {}
                Outcome::Fail => tally.fail(story),
                Outcome::Skip => tally.skip(story),
            }
        }
        for problem in &verdict.problems {
            tally.fail(format!("VM {label}: {problem}"));
        }
        verdicts.push(verdict);
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use anyhow::anyhow;

    use crate::setup::guest_root::Root;

    use super::*;
    use crate::outcome::Counts;

    #[test]
    fn concurrent_boots_have_different_labels() {
        let beside = BOOTS.iter().filter(|(lane, _)| *lane == Lane::Beside);
        let labels: BTreeSet<String> = beside.clone().map(|(_, wanted)| wanted.label()).collect();
        assert_eq!(labels.len(), beside.count());
        for (_, wanted) in BOOTS {
            assert_eq!(wanted.plan(false).unwrap().label(), wanted.label());
        }
    }

    #[test]
    fn boots_that_measure_time_run_alone_and_first() {
        for (lane, Wanted(_, _, boot, _)) in BOOTS {
            assert_eq!(lane == Lane::Alone, boot == Boot::Reference);
        }
    }

    #[test]
    fn a_failure_beside_another_guest_is_repeated_alone() {
        let first = || Verdict::made_up("6.1 v1", &[("ramp", Outcome::Pass), ("swarm", Outcome::Fail)]);
        assert_eq!(first().failed(), ["swarm"]);
        let plan = BOOTS[3].1.plan(false).unwrap().only(&["swarm"]);
        assert_eq!(plan.requests.iter().map(crate::vm::scenario::Request::expression).collect::<Vec<_>>(), ["swarm"]);
        let well = first().overruled_by(Verdict::made_up("6.1 v1", &[("swarm", Outcome::Pass)]));
        assert!(well.passed());
        assert_eq!(well.runs[1].reason, "made up; at first: made up");
        let broken = first().overruled_by(Verdict::made_up("6.1 v1", &[("swarm", Outcome::Fail)]));
        assert_eq!(broken.counts, Counts { passed: 1, failed: 1, skipped: 0 });
    }

    #[test]
    fn each_part_is_listed_once() {
        assert_eq!(
            parts(false),
            [
                Part::Kernel(Series::V6_12, Arch::host()),
                Part::GuestRoot(Root::Containers),
                Part::Kernel(Series::V6_1, Arch::host())
            ]
        );
    }

    #[test]
    fn a_boot_without_a_verdict_counts_as_a_failure() {
        let outcomes = [
            ("6.1 v1".to_owned(), Ok(Verdict::made_up("6.1 v1", &[("ramp", Outcome::Pass), ("swarm", Outcome::Fail)]))),
            ("6.1 v2".to_owned(), Err(anyhow!("panicked: ouch"))),
            ("6.12 v2".to_owned(), Ok(Verdict::made_up("6.12 v2", &[("ramp", Outcome::Skip)]))),
        ];
        let mut tally = Tally::default();
        let verdicts = count(outcomes.into_iter(), &mut tally);
        assert_eq!(verdicts.iter().map(|verdict| verdict.label.as_str()).collect::<Vec<_>>(), ["6.1 v1", "6.12 v2"]);
        assert_eq!(tally.counts, Counts { passed: 1, failed: 2, skipped: 1 });
        assert_eq!(tally.failures, ["VM 6.1 v1: swarm: made up", "VM 6.1 v2: panicked: ouch"]);
        assert_eq!(tally.skips, ["VM 6.12 v2: ramp: made up"]);
    }
}
