use super::*;

fn texts(pairs: &[(&str, &str)]) -> cri::Texts {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn listed(annotations: &[(&str, &str)]) -> cri::PodSandbox {
    let metadata =
        cri::PodSandboxMetadata { name: "n".to_owned(), uid: "u".to_owned(), namespace: "ns".to_owned(), attempt: 3 };
    cri::PodSandbox {
        id: "s".to_owned(),
        metadata: Some(metadata),
        state: 1,
        created_at: 0,
        labels: cri::Texts::new(),
        annotations: texts(annotations),
    }
}

#[test]
fn labels_that_name_the_pod_are_dropped() {
    let own = [("app", "web"), ("io.kubernetes.pod.name", "n"), ("io.kubernetes.pod.uid", "u")];
    let labels = own.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let found = sandbox(cri::PodSandbox { labels, ..listed(&[]) }).unwrap();
    assert_eq!(*found.labels, [("app".to_owned(), "web".to_owned())].into());
}

#[test]
fn static_pods_are_recognized_by_annotations() {
    for (annotations, expected) in [
        (&[][..], false),
        (&[("kubernetes.io/config.source", "api")][..], false),
        (&[("kubernetes.io/config.source", "file")][..], true),
        (&[("kubernetes.io/config.mirror", "x")][..], true),
    ] {
        assert_eq!(sandbox(listed(annotations)).unwrap().is_static, expected, "{annotations:?}");
    }
    let sandbox = sandbox(listed(&[])).unwrap();
    assert_eq!((sandbox.is_ready, sandbox.attempt, sandbox.created), (false, 3, None));
}

#[test]
fn objects_without_an_id_are_left_out() {
    assert_eq!(sandbox(cri::PodSandbox { id: String::new(), ..listed(&[]) }), None);
    assert_eq!(sandbox(cri::PodSandbox { metadata: None, ..listed(&[]) }), None);
    let nameless = cri::PodSandboxMetadata::default();
    assert_eq!(sandbox(cri::PodSandbox { metadata: Some(nameless), ..listed(&[]) }), None);
    assert_eq!(container(cri::Container::default(), &[]), None);
}

#[test]
fn a_container_without_sandbox_has_its_pod_from_labels() {
    let labels = texts(&[
        ("io.kubernetes.pod.name", "n"),
        ("io.kubernetes.pod.namespace", "ns"),
        ("io.kubernetes.pod.uid", "u"),
        ("app", "x"),
    ]);
    let message = cri::Container { id: "c".to_owned(), labels, state: 9, ..Default::default() };
    let found = container(message.clone(), &[]).unwrap();
    let pod = PodRef { namespace: "ns".to_owned(), name: "n".to_owned(), uid: PodUid("u".to_owned()) };
    assert_eq!((found.pod, found.state), (Some(pod), ContainerState::Unknown));
    let message = cri::Container { labels: cri::Texts::new(), ..message };
    assert_eq!(container(message, &[]).unwrap().pod, None);
}

#[test]
fn a_missing_limit_is_none() {
    let none = cri::LinuxContainerResources { cpu_period: 0, cpu_quota: -1, cpu_shares: 2, memory_limit_in_bytes: 0 };
    let resources = Some(cri::ContainerResources { linux: Some(none) });
    let status = cri::ContainerStatus { resources, log_path: "relative".to_owned(), ..Default::default() };
    assert_eq!(details(status), Details::default());
    assert_eq!(details(cri::ContainerStatus::default()), Details::default());
}

#[test]
fn stores_are_directories() {
    let usage = |path: &str| vec![cri::FilesystemUsage { fs_id: Some(path.to_owned()), ..Default::default() }];
    let message = cri::ImageFsInfoResponse { image_filesystems: usage("/a"), container_filesystems: usage("b") };
    let expected = Stores { image: Some(PathBuf::from("/a")), ..Stores::default() };
    assert_eq!(stores(message), expected);
    assert_eq!(stores(cri::ImageFsInfoResponse::default()), Stores::default());
}
