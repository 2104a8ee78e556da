//! Configuration files.

use node_pressure_monitor::config::{
    ConfigErrors, FileKind, MonitorConfig, Policy, Semantics, Threshold, fix, migrate,
};
use node_pressure_monitor::eviction::{Armed, Layout, Observation, State, arm, assess};
use node_pressure_monitor::units::Moment;

const NAME: &str = "fuzz.yaml";

/// A file of any kind.
pub fn file(text: &str) {
    let parsed = MonitorConfig::parse(NAME, text);
    match &parsed {
        Ok(loaded) => usable(&loaded.config),
        Err(errors) => helpful(text, errors),
    }
    assert_eq!(MonitorConfig::parse(NAME, text), parsed, "the same text, another answer");
    mendable(text, parsed.is_ok());
    if let Ok(loaded) = parsed.as_ref().map(|loaded| (loaded.kind, &loaded.config.policy)) {
        migratable(text, loaded.0, loaded.1);
    }
}

/// A valid text stays as it is. The mistakes left after a correction are those that the parser finds in the corrected text.
fn mendable(text: &str, is_valid: bool) {
    let mended = fix::mend(NAME, text);
    assert!(!is_valid || mended.text == text && mended.changes.is_empty(), "{mended:?}");
    assert_eq!(mended.left, MonitorConfig::parse(NAME, &mended.text).err(), "of {}", mended.text);
}

/// A kubelet's configuration becomes one of the agent with the same policy.
fn migratable(text: &str, kind: FileKind, before: &Policy) {
    for semantics in Semantics::ALL {
        match migrate::migrate(NAME, text, semantics) {
            Ok(migrated) => {
                let after = MonitorConfig::parse(NAME, &migrated).map(|loaded| loaded.config.policy);
                let mut before = before.clone();
                before.reservations.hard_thresholds = true;
                assert!(semantics != Semantics::Kubelet || after == Ok(before), "{migrated}");
            }
            Err(errors) => assert_eq!(kind, FileKind::Monitor, "{errors}"),
        }
    }
}

/// Each error is one line that leads into the file.
fn helpful(text: &str, errors: &ConfigErrors) {
    assert!(!errors.0.is_empty(), "refused, and no word why");
    // YAML ends lines at \n, \r and \r\n; an error may stand behind the last.
    let last = text.replace("\r\n", "\n").matches(['\n', '\r']).count() + 1;
    for error in &errors.0 {
        assert_eq!(error.file, NAME, "{error:?}");
        assert!(error.line <= last + 1, "line {} of {last}: {error:?}", error.line);
        assert!(error.line > 0 && error.column > 0, "nowhere: {error:?}");
        assert!(!error.reason.is_empty(), "{error:?}");
        assert_eq!(error.to_string().lines().count(), 1, "more than one line: {error:?}");
    }
    assert!(errors.0.is_sorted_by_key(|error| error.line), "not in the order of lines: {errors:?}");
}

/// An accepted configuration can be acted on.
fn usable(config: &MonitorConfig) {
    let policy = &config.policy;
    assert!(config.sampling.floor <= config.sampling.ceiling, "{:?}", config.sampling);
    assert!(!config.sampling.floor.is_zero(), "{:?}", config.sampling);
    assert!(config.lock_file.is_absolute() && config.cgroup_root.is_absolute() && config.proc_root.is_absolute());
    for Threshold { signal, value, grace_period: _, min_reclaim } in &policy.thresholds {
        let amounts = [0, 1 << 30, i64::MAX].map(|capacity| value.resolve(capacity, policy.quirks));
        assert!(amounts.iter().all(|amount| !amount.is_negative()), "{signal}<{value}");
        let reclaim = min_reclaim.as_ref().map(|reclaim| reclaim.resolve(1 << 30, policy.quirks));
        assert!(reclaim.is_none_or(|reclaim| !reclaim.is_negative()), "{signal}<{value}: {min_reclaim:?}");
    }
    for layout in [Layout::Single, Layout::DedicatedImageFs, Layout::SplitImageFs] {
        let armed: Vec<Armed> = arm(policy, layout);
        let observation = Observation::default();
        let (state, first) = assess(policy, &armed, &State::default(), &observation, Moment(0));
        let (_, second) = assess(policy, &armed, &state, &observation, Moment(1));
        for assessment in [first, second] {
            assert!(assessment.met.is_empty() && assessment.conditions.is_empty(), "met with nothing observed");
        }
    }
}
