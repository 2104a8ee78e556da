//! What an agent records of an eviction is enough to play it again: a world that is made from the record ends with the same victim.

use node_pressure_monitor::eviction::decider::{OwnedRules, Pace, RecordedLine};
use node_pressure_worlds::episode::{Replay, replay};
use node_pressure_worlds::generate::world;
use node_pressure_worlds::run::{Options, of_plan, run};

const SEED: u64 = 11;
const WORLDS: u64 = 300;

#[test]
fn the_first_eviction_of_a_world_is_played_again_from_its_record() {
    let (mut all, mut differences) = (0, Vec::new());
    for number in 0..WORLDS {
        let plan = world(SEED, number);
        let options = Options { until_first: true, records: true, ..Options::default() };
        let (history, _) = run(&plan, options);
        let (Some(turn), Some(first)) = (history.recorded, history.decisions.first()) else { continue };
        let agent = of_plan(&plan, options.mode);
        let rules = OwnedRules { policy: agent.policy, pace: Pace::Agent(agent.rules) };
        let victim = plan.pods[first.victim].name.clone();
        let (time, explanation) = (String::new(), format!("world {number}"));
        match replay(&rules, &RecordedLine { time, turn, victim, above_limit: None, explanation }) {
            Replay::Same => all += 1,
            Replay::Differs(how) => {
                all += 1;
                differences.push(how);
            }
            Replay::LeftOut(why) => panic!("{why}"),
        }
    }
    assert!(all > 240, "{all} worlds with an eviction");
    assert!(differences.len() * 20 <= all, "{} of {all} differ:\n{}", differences.len(), differences.join("\n"));
}
