use super::*;
use crate::config::Mode;

const HEAD: &str = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";

fn interpret() -> Interpret {
    Box::new(|bytes| {
        let loaded = MonitorConfig::parse_bytes("m.yaml", bytes).map_err(|errors| errors.to_string())?;
        Ok(Wanted { config: loaded.config, warnings: loaded.warnings })
    })
}

fn watched(path: &Path, started_by: &str) -> Watched {
    Watched {
        path: path.to_owned(),
        interpret: interpret(),
        seen: Seen::Nothing,
        read: None,
        fingerprint: Some(Fingerprint::of(started_by.as_bytes())),
        is_told_missing: false,
    }
}

fn mode(news: &ConfigNews) -> Mode {
    news.read.as_ref().unwrap().config.mode
}

#[test]
fn what_the_agent_started_by_is_no_news() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("monitor.yaml");
    std::fs::write(&path, HEAD).unwrap();
    let mut watched = watched(&path, HEAD);
    assert!((0..5).all(|_| watched.look(false).is_none()));
    // The same text in another file is none either: a ConfigMap whose other keys changed.
    std::fs::write(directory.path().join("new"), HEAD).unwrap();
    std::fs::rename(directory.path().join("new"), &path).unwrap();
    assert!((0..5).all(|_| watched.look(false).is_none()));
    // Unless somebody asks.
    let news = watched.look(true).unwrap();
    assert!(news.is_same && news.read.is_ok());
}

#[test]
fn what_changed_between_the_start_and_the_first_look_is_news() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("monitor.yaml");
    std::fs::write(&path, format!("{HEAD}mode: enforce\n")).unwrap();
    let mut watched = watched(&path, HEAD);
    let news: Vec<ConfigNews> = (0..5).filter_map(|_| watched.look(false)).collect();
    assert_eq!(news.iter().map(mode).collect::<Vec<_>>(), [Mode::Enforce]);
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
    let mut watched = watched(&path, HEAD);
    assert!((0..3).all(|_| watched.look(false).is_none()));
    put("..2", &format!("{HEAD}mode: enforce\n"));
    std::fs::remove_dir_all(root.join("..1")).unwrap();
    let news: Vec<ConfigNews> = (0..5).filter_map(|_| watched.look(false)).collect();
    assert_eq!(news.iter().map(mode).collect::<Vec<_>>(), [Mode::Enforce]);
}

#[test]
fn half_a_file_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("monitor.yaml");
    std::fs::write(&path, HEAD).unwrap();
    let mut watched = watched(&path, HEAD);
    assert!((0..3).all(|_| watched.look(false).is_none()));
    // Somebody writes it piece by piece, more often than it is looked at; each piece would be a whole configuration.
    let mut text = HEAD.to_owned();
    for line in ["mode: enforce\n", "protected: [a]\n", "evictionHard: {memory.available: 1Gi}\n"] {
        text.push_str(line);
        std::fs::write(&path, &text).unwrap();
        assert!(watched.look(false).is_none());
    }
    let news = watched.look(false).unwrap();
    assert_eq!(news.fingerprint, Some(Fingerprint::of(text.as_bytes())));
    assert!(watched.look(false).is_none());
}

#[test]
fn a_bad_file_is_told_once_and_so_is_its_repair() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("monitor.yaml");
    std::fs::write(&path, HEAD).unwrap();
    let mut watched = watched(&path, HEAD);
    let mut looks = |text: &str| -> Vec<Result<Mode, String>> {
        std::fs::write(&path, text).unwrap();
        let news = (0..5).filter_map(|_| watched.look(false));
        news.map(|news| news.read.map(|wanted| wanted.config.mode)).collect()
    };
    let refused = looks(&format!("{HEAD}mode: enforced\n"));
    assert!(
        matches!(&refused[..], [Err(reason)] if reason.starts_with("m.yaml:3: mode: \"enforced\": ")),
        "{refused:?}"
    );
    // Back to what is in force all the while: that it is well again has to be heard.
    assert_eq!(looks(HEAD), [Ok(Mode::Observe)]);
}

#[test]
fn a_file_that_is_gone_for_a_moment_is_no_news_and_one_that_stays_away_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("monitor.yaml");
    std::fs::write(&path, HEAD).unwrap();
    let mut watched = watched(&path, HEAD);
    assert!((0..3).all(|_| watched.look(false).is_none()));
    std::fs::remove_file(&path).unwrap();
    assert!(watched.look(false).is_none());
    std::fs::write(&path, HEAD).unwrap();
    assert!((0..3).all(|_| watched.look(false).is_none()));
    std::fs::remove_file(&path).unwrap();
    let news: Vec<ConfigNews> = (0..5).filter_map(|_| watched.look(false)).collect();
    assert!(
        matches!(&news[..], [ConfigNews { read: Err(reason), .. }] if reason.contains("put the file back")),
        "{news:?}"
    );
    std::fs::write(&path, HEAD).unwrap();
    let news: Vec<ConfigNews> = (0..5).filter_map(|_| watched.look(false)).collect();
    assert!(matches!(&news[..], [ConfigNews { read: Ok(_), .. }]));
}

#[tokio::test]
async fn the_thread_tells_and_reads_at_once_when_asked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("monitor.yaml");
    std::fs::write(&path, HEAD).unwrap();
    let started_by = Fingerprint::of(HEAD.as_bytes());
    let watch = ConfigWatch::start_every(&path, started_by, interpret(), Duration::from_millis(2)).unwrap();
    std::fs::write(&path, format!("{HEAD}mode: enforce\n")).unwrap();
    assert_eq!(mode(&watch.news().await), Mode::Enforce);
    let watch = ConfigWatch::start_every(&path, started_by, interpret(), Duration::from_secs(3600)).unwrap();
    watch.ask();
    assert_eq!(mode(&watch.news().await), Mode::Enforce);
}
