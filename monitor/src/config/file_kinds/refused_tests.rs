//! Files of other kinds, unreadable files and hostile files.

use crate::config::policy::MonitorConfig;

const HEAD: &str = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";

#[test]
fn files_of_other_kinds_are_refused_by_name() {
    for (text, message) in [
        (
            "",
            "f:1: the file is empty; start with `apiVersion: node-pressure-monitor/v1alpha1` and `kind: MonitorConfiguration`",
        ),
        ("- a", "f:1: the file must be a map of fields, not a list; start with"),
        (
            "mode: observe",
            "f:1: apiVersion: missing; add `apiVersion: node-pressure-monitor/v1alpha1`\nf:1: kind: missing; add `kind: MonitorConfiguration`",
        ),
        (
            "apiVersion: v1\nkind: Pod",
            r#"f:2: kind: "Pod": not one of the kinds of configuration; write MonitorConfiguration, KubeletConfiguration or NodeConfig"#,
        ),
        (
            "apiVersion: v1\nkind: ConfigMap\ndata: {node-config.yaml: x}",
            r#"f:2: kind: "ConfigMap": a ConfigMap without a configuration in its `data`, or with several; save the text below one of its `data` keys"#,
        ),
        (
            "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig",
            r#"f:2: kind: "KubeletConfig": a resource of OpenShift's operators without fields of the kubelet; name the file"#,
        ),
        ("kind: [x]", "f:1: apiVersion: missing; add"),
        (
            "apiVersion: node-pressure-monitor/v2\nkind: MonitorConfiguration",
            r#"f:1: apiVersion: "node-pressure-monitor/v2": not one of the choices; write node-pressure-monitor/v1alpha1"#,
        ),
        ("a: [", "f:2: not valid YAML: "),
    ] {
        let errors = MonitorConfig::parse("f", text).unwrap_err().to_string();
        assert!(errors.starts_with(message), "{text}:\n{errors}");
    }
}

#[test]
fn errors_about_unreadable_files_have_a_fix() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.yaml");
    let errors = MonitorConfig::load(&missing).unwrap_err().to_string();
    assert_eq!(
        errors,
        format!(
            "{}: cannot be read: No such file or directory (os error 2); check the path and its permissions",
            missing.display()
        )
    );
    let binary = folder.path().join("binary.yaml");
    std::fs::write(&binary, [0xff, 0xfe]).unwrap();
    let errors = MonitorConfig::load(&binary).unwrap_err().to_string();
    assert!(errors.contains("not UTF-8"), "{errors}");
    let good = folder.path().join("good.yaml");
    std::fs::write(&good, HEAD).unwrap();
    assert_eq!(MonitorConfig::load(&good).map(|loaded| loaded.config), Ok(MonitorConfig::default()));
    let large = folder.path().join("large.yaml");
    std::fs::write(&large, "#".repeat(300 << 10)).unwrap();
    assert!(MonitorConfig::load(&large).unwrap_err().to_string().contains("larger than 256 KiB"));
}

#[test]
fn the_length_of_all_errors_is_bounded() {
    let body: String = (0..20_000).map(|number| format!("x{number}: 1\n")).collect();
    let errors = MonitorConfig::parse("f", &format!("{HEAD}{body}")).unwrap_err();
    assert_eq!(errors.0.len(), 201);
    assert_eq!(errors.0[200].reason, "19800 more errors");
    // Control characters do not reach the terminal.
    let errors = MonitorConfig::parse("f", &format!("{HEAD}\"\\e[31m\\n\": 1")).unwrap_err().to_string();
    assert!(errors.starts_with("f:3: \u{fffd}[31m\u{fffd}: unknown field;"), "{errors}");
    let long = "x".repeat(1 << 16);
    let errors = MonitorConfig::parse("f", &format!("{HEAD}mode: {long}\n{long}: 1")).unwrap_err().to_string();
    assert!(errors.len() < 2000, "{}", errors.len());
}

/// Damages the default file in a thousand ways. Each must end in an error, not in a panic.
#[test]
fn damaged_files_are_errors() {
    let whole = include_str!("../../../../config/monitor.yaml");
    let pieces =
        ["\n", ": ", "- ", "[", "{", "}", "\"", "'", "%", "1e99", "-", "&a ", "*a", "!x ", "µ", "\t", "~", "0x1p9999%"];
    // A linear congruential generator repeats the same damage in every run.
    let mut state: u64 = 1;
    let mut random = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % limit
    };
    let mut refused = 0;
    for _ in 0..1000 {
        let mut text = whole.to_owned();
        for _ in 0..=random(4) {
            let mut at = random(text.len());
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            match random(3) {
                0 => text.insert_str(at, pieces[random(pieces.len())]),
                1 => text.truncate(at.max(1)),
                _ => drop(text.remove(at)),
            }
        }
        if let Err(errors) = MonitorConfig::parse("f", &text).map(drop) {
            refused += 1;
            assert!(errors.0.iter().all(|error| error.line > 0 && !error.reason.is_empty()), "{text}");
            assert!(errors.0.iter().all(|error| error.fix.as_ref().is_some_and(|fix| !fix.is_empty())), "{errors}");
        }
    }
    assert!((100..1000).contains(&refused), "{refused}");
}
