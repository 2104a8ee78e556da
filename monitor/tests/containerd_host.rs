//! The runtime thread with a real containerd in a directory of its own. It tests images only, since containers need cgroups. Without
//! containerd or root the test prints SKIPPED.

#![expect(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use node_pressure_monitor::config::{RuntimeEndpoint, RuntimeOptions};
use node_pressure_monitor::runtime::{
    CollectEnd, CollectOrder, Collected, Event, Garbage, Image, Runtime, Snapshot, State,
};

/// Prints directly to stderr: the test harness captures output, and a skipped test must be visible.
macro_rules! tell {
    ($($text:tt)*) => {
        let _unheard = writeln!(std::io::stderr(), $($text)*);
    };
}

const PATIENCE: Duration = Duration::from_secs(60);
const LAYER_BYTES: usize = 1 << 20;

fn until<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A containerd in a directory. Dropping it kills it.
struct Containerd {
    place: PathBuf,
    child: Child,
}

impl Containerd {
    fn start(place: &Path) -> Self {
        let configuration = format!(
            "version = 2\nroot = \"{place}/root\"\nstate = \"{place}/state\"\n[grpc]\naddress = \"{place}/containerd.sock\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"registry.local/sandbox:1\"\n",
            place = place.display()
        );
        fs::write(place.join("config.toml"), configuration).unwrap();
        let log = fs::File::create(place.join("log")).unwrap();
        let child = Command::new("containerd")
            .arg("--config")
            .arg(place.join("config.toml"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { place: place.to_owned(), child }
    }

    fn import(&self, archive: &Path) {
        let socket = self.place.join("containerd.sock");
        run(Command::new("ctr").arg("-a").arg(socket).args(["-n", "k8s.io", "images", "import"]).arg(archive));
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        let _dead = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Writes `bytes` as a blob; returns its digest and size.
fn blob(layout: &Path, bytes: &[u8]) -> (String, usize) {
    let path = layout.join("blob");
    fs::write(&path, bytes).unwrap();
    let sum = run(Command::new("sha256sum").arg(&path));
    let digest = sum.split_whitespace().next().unwrap().to_owned();
    fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    fs::rename(&path, layout.join("blobs/sha256").join(&digest)).unwrap();
    (digest, bytes.len())
}

/// Makes an OCI archive of one layer of noise, named `tag`.
fn image(place: &Path, tag: &str, seed: u8) -> PathBuf {
    let name = tag.replace(['/', ':'], "_");
    let (files, layout) = (place.join(format!("{name}-files")), place.join(format!("{name}-layout")));
    for directory in [&files, &layout] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::write(files.join("data"), vec![seed; LAYER_BYTES]).unwrap();
    let layer = place.join(format!("{name}-layer.tar"));
    run(Command::new("tar").arg("-C").arg(&files).arg("-cf").arg(&layer).arg("data"));
    let (layer, layer_size) = blob(&layout, &fs::read(&layer).unwrap());
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","config":{{}},"rootfs":{{"type":"layers","diff_ids":["sha256:{layer}"]}}}}"#
    );
    let (config, config_size) = blob(&layout, config.as_bytes());
    let oci = "application/vnd.oci.image";
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"{oci}.manifest.v1+json","config":{{"mediaType":"{oci}.config.v1+json","digest":"sha256:{config}","size":{config_size}}},"layers":[{{"mediaType":"{oci}.layer.v1.tar","digest":"sha256:{layer}","size":{layer_size}}}]}}"#
    );
    let (manifest, size) = blob(&layout, manifest.as_bytes());
    let index = format!(
        r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"{oci}.manifest.v1+json","digest":"sha256:{manifest}","size":{size},"annotations":{{"io.containerd.image.name":"{tag}","org.opencontainers.image.ref.name":"{tag}"}}}}]}}"#
    );
    fs::write(layout.join("index.json"), index).unwrap();
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    let archive = place.join(format!("{name}.tar"));
    run(Command::new("tar").arg("-C").arg(&layout).arg("-cf").arg(&archive).arg("."));
    archive
}

fn seen(runtime: &Runtime, what: &str, accept: impl Fn(&Snapshot) -> bool) -> Arc<Snapshot> {
    until(what, || {
        let _full = runtime.observe();
        runtime.view().snapshot.filter(|snapshot| accept(snapshot))
    })
}

fn collect(runtime: &mut Runtime, dry_run: bool, is_enough: impl FnMut() -> bool + Send + 'static) -> Collected {
    let order = CollectOrder {
        what: vec![Garbage::Containers, Garbage::Images],
        dry_run,
        awaits_space: true,
        is_enough: Box::new(is_enough),
    };
    runtime.collect(order).unwrap();
    until("a collection", || match runtime.try_event() {
        Some(Event::Collected(collected)) => Some(collected),
        _ => None,
    })
}

fn names(snapshot: &Snapshot) -> Vec<&str> {
    let mut names: Vec<&str> = snapshot.images.iter().map(Image::name).collect();
    names.sort_unstable();
    names
}

#[test]
fn real_images_are_collected_across_a_restart() {
    let has = |name: &str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    let is_root = rustix::process::geteuid().is_root();
    if !is_root || !["containerd", "ctr", "tar", "sha256sum"].into_iter().all(has) {
        tell!("SKIPPED images_of_a_real_containerd: needs root, containerd, ctr, tar and sha256sum");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let containerd = Containerd::start(place.path());
    let options = RuntimeOptions {
        endpoint: RuntimeEndpoint::Unix(place.path().join("containerd.sock")),
        minimum_container_age: Duration::ZERO,
        image_minimum_gc_age: Duration::ZERO,
        ..RuntimeOptions::default()
    };
    let mut runtime = Runtime::start(options).unwrap();
    let log = || fs::read_to_string(place.path().join("log")).unwrap_or_default();
    until("containerd", || match runtime.view().state {
        State::Up { runtime, .. } => Some(runtime),
        State::Down { reason, .. } if reason.contains("disabled_plugins") => panic!("no CRI plugin: {}", log()),
        _ => None,
    });
    for (tag, seed) in [("registry.local/old:1", 1), ("registry.local/old:2", 2), ("registry.local/sandbox:1", 3)] {
        containerd.import(&image(place.path(), tag, seed));
    }
    let snapshot = seen(&runtime, "three images", |snapshot| snapshot.images.len() == 3);
    tell!("{}: {:?}, stores {:?}", snapshot.runtime, names(&snapshot), snapshot.stores);
    assert!(snapshot.runtime.starts_with("containerd "), "{}", snapshot.runtime);
    assert!(snapshot.stores.image.as_ref().is_some_and(|path| path.starts_with(place.path())), "{:?}", snapshot.stores);
    let pinned: Vec<_> = snapshot.images.iter().filter(|image| image.is_pinned).map(Image::name).collect();
    assert_eq!(pinned, ["registry.local/sandbox:1"], "the configured sandbox image");

    let listed = collect(&mut runtime, true, || false);
    assert_eq!((listed.end, listed.counts.images), (CollectEnd::Listed, 2));
    assert!(listed.frees.0 >= 2 * LAYER_BYTES as u64, "{}", listed.frees.0);

    let mut measured = 0;
    let one = collect(&mut runtime, false, move || {
        measured += 1;
        measured > 1
    });
    assert_eq!((&one.end, one.counts.images), (&CollectEnd::Enough, 1), "{one:?}");
    let left = seen(&runtime, "two images", |snapshot| snapshot.images.len() == 2);
    assert!(names(&left).contains(&"registry.local/sandbox:1"), "{:?}", names(&left));

    drop(containerd);
    let _full = runtime.observe();
    until("its end to be seen", || matches!(runtime.view().state, State::Down { .. }).then_some(()));
    let _containerd = Containerd::start(place.path());
    seen(&runtime, "the same images", |snapshot| snapshot.images.len() == 2);
    let rest = collect(&mut runtime, false, || false);
    assert_eq!((rest.end, rest.counts.images), (CollectEnd::Exhausted, 1));
    let left = seen(&runtime, "one image", |snapshot| snapshot.images.len() == 1);
    assert_eq!(names(&left), ["registry.local/sandbox:1"]);
}
