//! The four fields of which thresholds consist.

use super::Migration;
use super::given::{Given, GivenMap};
use super::page::{Page, value};
use crate::config::config_error::ConfigWarning;
use crate::config::quirks::{Quirks, Semantics};
use crate::config::threshold::{ThresholdError, parse_threshold_value};
use crate::units::Signal;

impl Migration<'_> {
    pub(super) fn thresholds(&self, page: &mut Page) {
        self.hard(page);
        let soft = [("evictionSoft", true), ("evictionSoftGracePeriod", false), ("evictionMinimumReclaim", false)];
        for (name, is_threshold) in soft {
            let Some(map) = self.settings.map(name).filter(|map| !map.entries.is_empty()) else { continue };
            page.section(name).origin(self.place(map.line));
            for (signal, given) in &map.entries {
                let text = if is_threshold { self.accepted(signal, given) } else { given.text.clone() };
                let line = page.entry(name, signal, &value(&text));
                line.origin(self.origin(given, &text));
                if text != given.text {
                    line.note(ALWAYS_MET);
                }
            }
        }
    }

    fn hard(&self, page: &mut Page) {
        const NAME: &str = "evictionHard";
        let map = self.settings.map(NAME);
        let given = map.as_ref().map_or(&[][..], |map| &map.entries);
        let policy = &self.loaded.config.policy;
        let is_given = |signal: Signal| given.iter().any(|(name, _)| name == signal.as_str());
        let defaults: Vec<_> =
            policy.thresholds.iter().take(policy.hard_count).filter(|it| !is_given(it.signal)).collect();
        if given.is_empty() && defaults.is_empty() {
            let line = page.field(NAME, "{}");
            line.note("The source switches all hard thresholds off.");
            if let Some(map) = map {
                line.origin(self.place(map.line));
            }
            return;
        }
        let section = page.section(NAME);
        match &map {
            Some(map) => section.origin(self.place(map.line)),
            None => section.note(format!(
                "The source has no {}: a kubelet then has these defaults, which are written out, because the agent's default is \
                 memory.available<100Mi alone.",
                self.settings.name_of(NAME)
            )),
        };
        if let Some(ConfigWarning(warning)) =
            self.loaded.warnings.iter().find(|it| it.0.reason.starts_with("replaces all default thresholds"))
        {
            let gone = warning.reason.rsplit("no longer in force: ").next().unwrap_or_default();
            section.note(format!(
                "As in the source, these replace all defaults of a kubelet; not in force there, and not here: {gone}."
            ));
        }
        for (signal, given) in given {
            let text = self.accepted(signal, given);
            let line = page.entry(NAME, signal, &value(&text));
            line.origin(self.origin(given, &text));
            if text != given.text {
                line.note(ALWAYS_MET);
            } else if ["0%", "100%"].contains(&text.as_str()) {
                line.note("Switched off.");
            }
        }
        for threshold in &defaults {
            let line = page.entry(NAME, threshold.signal.as_str(), &value(&threshold.value.to_string()));
            match self.merged_in() {
                Some(number) => line.origin(format!(
                    "{}: mergeDefaultEvictionSettings keeps the kubelet's default",
                    self.place(number)
                )),
                None => line.origin("the kubelet's default"),
            };
        }
        if !is_given(Signal::MemoryAvailable) && !defaults.iter().any(|it| it.signal == Signal::MemoryAvailable) {
            page.entry(NAME, Signal::MemoryAvailable.as_str(), "0%")
                .note("The source has no hard threshold on memory. 0% says that this is meant.");
        }
    }

    /// Returns the line of a `mergeDefaultEvictionSettings` that is true.
    fn merged_in(&self) -> Option<usize> {
        let GivenMap { entries, .. } = self.settings.map("evictionHard")?;
        let given = self.settings.one("mergeDefaultEvictionSettings").filter(|_| !entries.is_empty());
        given.map(|given| given.line)
    }

    /// Returns the value of a threshold as these semantics accept it.
    fn accepted(&self, signal: &str, given: &Given) -> String {
        let is_refused = self.semantics == Semantics::Corrected
            && signal.parse::<Signal>().is_ok_and(|signal| {
                let parsed = parse_threshold_value(signal, &given.text, Quirks::of(Semantics::Corrected));
                matches!(parsed, Err(ThresholdError::AlwaysMet(..)))
            });
        if is_refused { "100%".to_owned() } else { given.text.clone() }
    }
}

const ALWAYS_MET: &str = "A kubelet takes this value for a threshold that is always met, and evicts one pod after another. With corrected \
                          semantics it is an error; 100% switches the threshold off.";
