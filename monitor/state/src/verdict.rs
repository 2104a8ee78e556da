//! The state of a node in one sentence.

use super::{Level, State, ThresholdState, Verdict};

/// A threshold that is further away at the present rate is not near.
const NEAR_SECONDS: f64 = 600.0;

impl State {
    /// Judges the rest of the document.
    #[must_use]
    pub fn judge(&self) -> Verdict {
        if let Some(under_way) = self.evictions.under_way.first() {
            return Verdict {
                level: Level::Red,
                sentence: format!("{} is being evicted: {}", under_way.display, under_way.step),
            };
        }
        let thresholds =
            || self.signals.iter().flat_map(|signal| signal.thresholds.iter().map(move |it| (&*signal.signal, it)));
        let hard = thresholds().find(|(_, it)| it.met && it.kind == "hard");
        let met = hard.or_else(|| thresholds().find(|(_, it)| it.met));
        if let Some((signal, threshold)) = met {
            let level = if hard.is_some() { Level::Red } else { Level::Yellow };
            let unarmed = threshold.unarmed.as_ref().map(|why| format!(" and evicts nothing yet: {why}"));
            let then = unarmed.unwrap_or_else(|| format!("; {}", self.consequence(signal, threshold)));
            return Verdict { level, sentence: format!("{} is met{then}", threshold.threshold) };
        }
        let seconds = |it: &ThresholdState| it.crossed_in_seconds.filter(|seconds| *seconds <= NEAR_SECONDS);
        let nearest =
            thresholds().filter_map(|(signal, it)| Some((seconds(it)?, signal, it))).min_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((seconds, signal, threshold)) = nearest {
            let consequence = self.consequence(signal, threshold);
            let sentence = format!("{seconds:.0} s to the threshold {}; {consequence}", threshold.threshold);
            return Verdict { level: Level::Yellow, sentence };
        }
        if self.signals.iter().all(|signal| signal.available.is_none()) {
            return Verdict { level: Level::Yellow, sentence: "no signal is observed".to_owned() };
        }
        match self.degradations.len() {
            0 => Verdict { level: Level::Green, sentence: "no threshold is near".to_owned() },
            1 => {
                Verdict { level: Level::Yellow, sentence: "no threshold is near; one capability is missing".to_owned() }
            }
            missing => Verdict {
                level: Level::Yellow,
                sentence: format!("no threshold is near; {missing} capabilities are missing"),
            },
        }
    }

    /// Returns whether no workload is being evicted and no threshold is met or near.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        let mut thresholds = self.signals.iter().flat_map(|signal| &signal.thresholds);
        let is_near = |it: &ThresholdState| it.met || it.crossed_in_seconds.is_some_and(|left| left <= NEAR_SECONDS);
        self.evictions.under_way.is_empty() && !thresholds.any(is_near)
    }

    fn consequence(&self, signal: &str, threshold: &ThresholdState) -> String {
        if threshold.unarmed.is_some() {
            return "it evicts nothing yet".to_owned();
        }
        let Some(ranking) = self.ranking(signal) else { return "what would be evicted is not known".to_owned() };
        match (&ranking.next, &ranking.none_because) {
            (Some(next), _) => {
                let place = ranking.places.iter().find(|place| place.workload == *next);
                let name = place.map_or(&**next, |place| &place.display);
                let verb =
                    if self.agent.mode == "observe" { "would be evicted in mode enforce" } else { "would be evicted" };
                format!("{name} {verb}")
            }
            (None, Some(reason)) => format!("nothing would be evicted: {reason}"),
            (None, None) => "nothing would be evicted".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Agent, Degradation, Level, Place, Ranking, SignalState, State, ThresholdState, UnderWay};

    fn state(met: bool, kind: &str, seconds: Option<f64>) -> State {
        let threshold = ThresholdState {
            threshold: "memory.available<100Mi".to_owned(),
            kind: kind.to_owned(),
            met,
            crossed_in_seconds: seconds,
            ..ThresholdState::default()
        };
        let signal = "memory.available".to_owned();
        let place = Place { workload: "/a".to_owned(), display: "batch/report".to_owned(), ..Place::default() };
        State {
            agent: Agent { mode: "enforce".to_owned(), ..Agent::default() },
            rankings: vec![Ranking {
                signal: signal.clone(),
                next: Some("/a".to_owned()),
                places: vec![place],
                none_because: None,
            }],
            signals: vec![SignalState {
                signal,
                available: Some(1),
                thresholds: vec![threshold],
                ..SignalState::default()
            }],
            ..State::default()
        }
    }

    #[test]
    fn the_sentence_names_what_is_nearest() {
        let near = "41 s to the threshold memory.available<100Mi; batch/report would be evicted";
        for (state, level, sentence) in [
            (state(false, "hard", None), Level::Green, "no threshold is near"),
            (state(false, "hard", Some(3600.0)), Level::Green, "no threshold is near"),
            (state(false, "hard", Some(41.2)), Level::Yellow, near),
            (
                state(true, "soft", Some(0.0)),
                Level::Yellow,
                "memory.available<100Mi is met; batch/report would be evicted",
            ),
            (
                state(true, "hard", Some(0.0)),
                Level::Red,
                "memory.available<100Mi is met; batch/report would be evicted",
            ),
            (State::default(), Level::Yellow, "no signal is observed"),
        ] {
            let verdict = state.judge();
            assert_eq!((verdict.level, &*verdict.sentence), (level, sentence));
        }
        let calm = [state(false, "hard", None), state(false, "hard", Some(3600.0)), State::default()];
        let near = [state(false, "soft", Some(41.2)), state(true, "soft", Some(0.0)), state(true, "hard", None)];
        assert!(calm.iter().all(State::is_calm) && !near.iter().any(State::is_calm));
        let mut evicting = state(true, "hard", Some(0.0));
        let (display, step) = ("batch/report".to_owned(), "SIGTERM was sent".to_owned());
        evicting.evictions.under_way.push(UnderWay { display, step, ..UnderWay::default() });
        assert!(!evicting.is_calm());
        assert_eq!(evicting.judge().sentence, "batch/report is being evicted: SIGTERM was sent");
        let mut degraded = state(false, "hard", None);
        degraded.degradations.push(Degradation::default());
        assert_eq!(degraded.judge().level, Level::Yellow);
    }
}
