use super::*;
use crate::config::Mode;

const HEAD: &str = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";

fn interpret() -> Interpret {
    Box::new(|bytes| MonitorConfig::parse_bytes("m.yaml", bytes).map_err(|errors| errors.to_string()))
}

fn polled(path: &Path, started_by: &str) -> Polled {
    Polled::new(path, Fingerprint::of(started_by.as_bytes()), interpret())
}

fn mode(update: &ConfigUpdate) -> Mode {
    update.read.as_ref().unwrap().config.mode
}

#[test]
fn the_configuration_of_the_start_is_no_update() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("monitor.yaml");
    std::fs::write(&path, HEAD).unwrap();
    let mut polled = polled(&path, HEAD);
    assert!((0..5).all(|_| polled.poll(false).is_none()));
    // Nor is the same text in another file: a ConfigMap whose other keys changed.
    std::fs::write(directory.path().join("new"), HEAD).unwrap();
    std::fs::rename(directory.path().join("new"), &path).unwrap();
    assert!((0..5).all(|_| polled.poll(false).is_none()));
    // A request always gets one.
    let update = polled.poll(true).unwrap();
    assert!(update.is_same && update.read.is_ok());
}

#[test]
fn a_change_before_the_first_poll_is_an_update() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("monitor.yaml");
    std::fs::write(&path, format!("{HEAD}mode: enforce\n")).unwrap();
    let mut polled = polled(&path, HEAD);
    let update: Vec<ConfigUpdate> = (0..5).filter_map(|_| polled.poll(false)).collect();
    assert_eq!(update.iter().map(mode).collect::<Vec<_>>(), [Mode::Enforce]);
}

#[test]
fn a_config_maps_symbolic_links_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    // As the kubelet's atomic writer does it: monitor.yaml -> ..data/monitor.yaml, ..data -> ..<time>.
    let put = |version: &str, text: &str| {
        std::fs::create_dir(root.join(version)).unwrap();
        std::fs::write(root.join(version).join("monitor.yaml"), text).unwrap();
        std::os::unix::fs::symlink(version, root.join("..data_tmp")).unwrap();
        std::fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    };
    put("..1", HEAD);
    let path = root.join("monitor.yaml");
    std::os::unix::fs::symlink("..data/monitor.yaml", &path).unwrap();
    let mut polled = polled(&path, HEAD);
    assert!((0..3).all(|_| polled.poll(false).is_none()));
    put("..2", &format!("{HEAD}mode: enforce\n"));
    std::fs::remove_dir_all(root.join("..1")).unwrap();
    let update: Vec<ConfigUpdate> = (0..5).filter_map(|_| polled.poll(false)).collect();
    assert_eq!(update.iter().map(mode).collect::<Vec<_>>(), [Mode::Enforce]);
}

#[test]
fn half_a_file_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("monitor.yaml");
    std::fs::write(&path, HEAD).unwrap();
    let mut polled = polled(&path, HEAD);
    assert!((0..3).all(|_| polled.poll(false).is_none()));
    // A writer appends between the polls; each part is a valid configuration.
    let mut text = HEAD.to_owned();
    for line in ["mode: enforce\n", "protected: [a]\n", "evictionHard: {memory.available: 1Gi}\n"] {
        text.push_str(line);
        std::fs::write(&path, &text).unwrap();
        assert!(polled.poll(false).is_none());
    }
    let update = polled.poll(false).unwrap();
    assert_eq!(update.fingerprint, Some(Fingerprint::of(text.as_bytes())));
    assert!(polled.poll(false).is_none());
}

#[test]
fn an_error_is_reported_once_and_so_is_its_correction() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("monitor.yaml");
    std::fs::write(&path, HEAD).unwrap();
    let mut polled = polled(&path, HEAD);
    let mut polls = |text: &str| -> Vec<Result<Mode, String>> {
        std::fs::write(&path, text).unwrap();
        let update = (0..5).filter_map(|_| polled.poll(false));
        update.map(|update| update.read.map(|wanted| wanted.config.mode)).collect()
    };
    let refused = polls(&format!("{HEAD}mode: enforced\n"));
    assert!(
        matches!(&refused[..], [Err(reason)] if reason.starts_with("m.yaml:3: mode: \"enforced\": ")),
        "{refused:?}"
    );
    // The content in force again: the agent must learn that the error is gone.
    assert_eq!(polls(HEAD), [Ok(Mode::Observe)]);
}

#[test]
fn only_a_file_missing_at_two_polls_is_an_update() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("monitor.yaml");
    std::fs::write(&path, HEAD).unwrap();
    let mut polled = polled(&path, HEAD);
    assert!((0..3).all(|_| polled.poll(false).is_none()));
    std::fs::remove_file(&path).unwrap();
    assert!(polled.poll(false).is_none());
    std::fs::write(&path, HEAD).unwrap();
    assert!((0..3).all(|_| polled.poll(false).is_none()));
    std::fs::remove_file(&path).unwrap();
    let update: Vec<ConfigUpdate> = (0..5).filter_map(|_| polled.poll(false)).collect();
    assert!(
        matches!(&update[..], [ConfigUpdate { read: Err(reason), .. }] if reason.contains("put the file back")),
        "{update:?}"
    );
    std::fs::write(&path, HEAD).unwrap();
    let update: Vec<ConfigUpdate> = (0..5).filter_map(|_| polled.poll(false)).collect();
    assert!(matches!(&update[..], [ConfigUpdate { read: Ok(_), .. }]));
}

#[tokio::test]
async fn the_thread_polls_and_answers_requests() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("monitor.yaml");
    std::fs::write(&path, HEAD).unwrap();
    let started_by = Fingerprint::of(HEAD.as_bytes());
    let watch = ConfigWatch::start_every(&path, started_by, interpret(), Duration::from_millis(2)).unwrap();
    std::fs::write(&path, format!("{HEAD}mode: enforce\n")).unwrap();
    assert_eq!(mode(&watch.update().await), Mode::Enforce);
    let watch = ConfigWatch::start_every(&path, started_by, interpret(), Duration::from_secs(3600)).unwrap();
    watch.request();
    assert_eq!(mode(&watch.update().await), Mode::Enforce);
}
