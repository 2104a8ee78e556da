//! The state of a node in one sentence.

use super::{Degradation, Level, Nearness, SignalState, State, ThresholdState, Verdict};

impl State {
    /// Judges the rest of the document.
    #[must_use]
    pub fn judge(&self) -> Verdict {
        let urgent = self.evicting().or_else(|| self.met()).or_else(|| self.near()).or_else(|| self.blind());
        let refused = self.agent.configuration.refused.as_ref();
        let refused = refused.map(|reason| format!("the new configuration was refused: {reason}"));
        match (urgent, refused) {
            (Some(urgent), None) => urgent,
            (Some(Verdict { level, sentence }), Some(refused)) => {
                Verdict { level, sentence: format!("{sentence}; {refused}") }
            }
            (None, refused) => self.calm(refused),
        }
    }

    /// Returns whether no workload is being evicted and no threshold is met or near.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        self.evictions.under_way.is_empty() && !self.signals.iter().any(SignalState::is_tight)
    }

    fn evicting(&self) -> Option<Verdict> {
        let under_way = self.evictions.under_way.first()?;
        let sentence = format!("{} is being evicted: {}", under_way.display, under_way.step);
        Some(Verdict { level: Level::Red, sentence })
    }

    fn met(&self) -> Option<Verdict> {
        let met = || self.thresholds().filter(|(_, it)| it.met);
        let hard = met().find(|(_, it)| it.kind == "hard");
        let (signal, threshold) = hard.or_else(|| met().next())?;
        let level = if hard.is_some() { Level::Red } else { Level::Yellow };
        let unarmed = threshold.unarmed.as_ref().map(|why| format!(" and evicts nothing yet: {why}"));
        let then = unarmed.unwrap_or_else(|| format!("; {}", self.consequence(&signal.signal, threshold)));
        Some(Verdict { level, sentence: format!("{} is met{then}", threshold.threshold) })
    }

    fn near(&self) -> Option<Verdict> {
        let near = self.thresholds().filter_map(|(signal, it)| Some((signal.nearness(it)?, signal, it)));
        let seconds = |nearness| match nearness {
            Nearness::In(seconds) => seconds,
            Nearness::LessThanTwice => f64::INFINITY,
        };
        let (nearness, signal, it) = near.min_by(|a, b| seconds(a.0).total_cmp(&seconds(b.0)))?;
        let distance = match nearness {
            Nearness::In(seconds) => format!("{seconds:.0} s to the threshold {}", it.threshold),
            Nearness::LessThanTwice => format!("less than twice the threshold {} is left", it.threshold),
        };
        let sentence = format!("{distance}; {}", self.consequence(&signal.signal, it));
        Some(Verdict { level: Level::Yellow, sentence })
    }

    fn blind(&self) -> Option<Verdict> {
        let is_blind = self.signals.iter().all(|signal| signal.available.is_none());
        is_blind.then(|| Verdict { level: Level::Yellow, sentence: "no signal is observed".to_owned() })
    }

    /// `refused`: the sentence about a configuration that was refused.
    fn calm(&self, refused: Option<String>) -> Verdict {
        let is_refused = refused.is_some();
        let degradations =
            self.degradations.iter().filter(|it| !(is_refused && it.capability == Degradation::CONFIGURATION));
        let mut to_mend = refused.into_iter().chain(degradations.filter_map(to_mend));
        let Some(first) = to_mend.next() else {
            return Verdict { level: Level::Green, sentence: "no threshold is near".to_owned() };
        };
        let others = match to_mend.count() {
            0 => String::new(),
            others => format!("; {others} more to mend"),
        };
        Verdict { level: Level::Yellow, sentence: format!("no threshold is near; {first}{others}") }
    }

    fn thresholds(&self) -> impl Iterator<Item = (&SignalState, &ThresholdState)> {
        self.signals.iter().flat_map(|signal| signal.thresholds.iter().map(move |it| (signal, it)))
    }

    fn consequence(&self, signal: &str, threshold: &ThresholdState) -> String {
        if let Some(why) = &threshold.reported_only {
            return format!("it is reported only: {why}");
        }
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

/// Returns the fault and the remedy, if there is one. The consequence, after the fault, is for the list of what is missing.
fn to_mend(Degradation { capability, sentence, mend }: &Degradation) -> Option<String> {
    let fault = sentence.split("; ").next().unwrap_or_default();
    mend.as_ref().map(|mend| format!("{capability}: {fault}; {mend}"))
}

#[cfg(test)]
mod tests {
    use crate::{
        Agent, Configuration, Degradation, History, Level, Place, Ranking, SignalState, State, ThresholdState, UnderWay,
    };

    fn state(met: bool, kind: &str, seconds: Option<f64>) -> State {
        let threshold = ThresholdState {
            threshold: "memory.available<100Mi".to_owned(),
            kind: kind.to_owned(),
            value: Some(100),
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
                available: Some(300),
                capacity: Some(2000),
                history: History { samples: vec![(30_000.0, 600), (20_000.0, 500), (10_000.0, 400), (0.0, 300)] },
                thresholds: vec![threshold],
                ..SignalState::default()
            }],
            ..State::default()
        }
    }

    #[test]
    fn a_threshold_that_can_evict_nothing_is_reported_only() {
        let mut state = state(true, "hard", Some(0.0));
        state.signals[0].thresholds[0].reported_only = Some("no pods on this host".to_owned());
        let sentence = "memory.available<100Mi is met; it is reported only: no pods on this host";
        assert_eq!(state.judge().sentence, sentence);
    }

    fn missing(capability: &str, sentence: &str, mend: Option<&str>) -> Degradation {
        let (capability, sentence) = (capability.to_owned(), sentence.to_owned());
        Degradation { capability, sentence, mend: mend.map(str::to_owned) }
    }

    #[test]
    fn the_sentence_names_what_is_nearest() {
        let near = "41 s to the threshold memory.available<100Mi; batch/report would be evicted";
        let mut little = state(false, "hard", None);
        little.signals[0].available = Some(199);
        let twice = "less than twice the threshold memory.available<100Mi is left; batch/report would be evicted";
        for (state, level, sentence) in [
            (state(false, "hard", None), Level::Green, "no threshold is near"),
            (state(false, "hard", Some(3600.0)), Level::Green, "no threshold is near"),
            (state(false, "hard", Some(41.2)), Level::Yellow, near),
            (little.clone(), Level::Yellow, twice),
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
        let near =
            [state(false, "soft", Some(41.2)), state(true, "soft", Some(0.0)), state(true, "hard", None), little];
        assert!(calm.iter().all(State::is_calm) && !near.iter().any(State::is_calm));
        let mut evicting = state(true, "hard", Some(0.0));
        let (display, step) = ("batch/report".to_owned(), "SIGTERM was sent".to_owned());
        evicting.evictions.under_way.push(UnderWay { display, step, ..UnderWay::default() });
        assert!(!evicting.is_calm());
        assert_eq!(evicting.judge().sentence, "batch/report is being evicted: SIGTERM was sent");
    }

    #[test]
    fn an_allocation_with_much_memory_left_is_not_near() {
        let mut state = state(false, "hard", Some(68.0));
        state.signals[0].capacity = Some(350);
        assert_eq!(state.judge().level, Level::Green);
        assert!(state.is_calm());
        // A disk with 28 % left, whose threshold is 15 %, may stay so for years.
        let mut disk = state.clone();
        disk.signals[0].thresholds[0].crossed_in_seconds = None;
        (disk.signals[0].available, disk.signals[0].capacity) = (Some(190), Some(680));
        assert!(!disk.is_calm(), "memory");
        disk.signals[0].signal = "imagefs.available".to_owned();
        assert!(disk.is_calm());
        disk.signals[0].capacity = Some(1000);
        assert!(!disk.is_calm());
    }

    #[test]
    fn only_a_degradation_that_can_be_mended_colours_the_headline() {
        let mut state = state(false, "hard", None);
        state.degradations.push(missing("OOM constraint", "no kprobes; nothing to do", None));
        assert_eq!((state.judge().level, &*state.judge().sentence), (Level::Green, "no threshold is near"));
        let runtime = missing("container runtime", "it does not answer; no images are removed", Some("start it"));
        state.degradations.push(runtime.clone());
        let sentence = "no threshold is near; container runtime: it does not answer; start it";
        assert_eq!((state.judge().level, &*state.judge().sentence), (Level::Yellow, sentence));
        state.degradations.push(missing("pods", "the file is old", Some("write it again")));
        assert_eq!(state.judge().sentence, format!("{sentence}; 1 more to mend"));
    }

    #[test]
    fn a_refused_configuration_is_in_every_headline() {
        let refused = || Configuration { refused: Some("m.yaml:3: mode".to_owned()), ..Configuration::default() };
        for (mut state, level, before) in [
            (state(false, "hard", None), Level::Yellow, "no threshold is near"),
            (
                state(true, "hard", Some(0.0)),
                Level::Red,
                "memory.available<100Mi is met; batch/report would be evicted",
            ),
        ] {
            state.agent.configuration = refused();
            state.degradations.push(missing(Degradation::CONFIGURATION, "m.yaml:3: mode", Some("correct the file")));
            let sentence = format!("{before}; the new configuration was refused: m.yaml:3: mode");
            assert_eq!((state.judge().level, state.judge().sentence), (level, sentence));
        }
        let mut also_degraded = state(false, "hard", None);
        also_degraded.agent.configuration = refused();
        also_degraded.degradations.push(missing("pods", "the file is old", Some("write it again")));
        let sentence = "no threshold is near; the new configuration was refused: m.yaml:3: mode; 1 more to mend";
        assert_eq!(also_degraded.judge().sentence, sentence);
    }
}
