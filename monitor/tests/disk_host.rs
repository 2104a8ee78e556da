//! Disk usage of workloads on real filesystems of this machine: an overlay with a process in it, and project quotas on disk images.
#![expect(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use node_pressure_monitor::config::DiskUsageOptions;
use node_pressure_monitor::disk::{Held, Part, Roots, Source, Usage, Walker, WorkloadPlaces};
use node_pressure_monitor::units::{Bytes, CgroupId};
use node_pressure_monitor::workloads::PodUid;
use rustix::ioctl::{Setter, opcode};

/// Prints directly to stderr: the test harness shows output only of failed tests, and a skipped test must be visible.
macro_rules! tell {
    ($($text:tt)*) => {
        let _unheard = writeln!(std::io::stderr(), $($text)*);
    };
}

const UID: &str = "1b2c3d4e-0000-1111-2222-333344445555";
const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const MIB: u64 = 1 << 20;

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let reason = said.lines().next().unwrap_or("failed without a word");
    if output.status.success() { Ok(()) } else { Err(format!("{program}: {reason}")) }
}

/// A mount that lasts until the end of the test.
struct Mounted(PathBuf);

impl Mounted {
    fn new(options: &[&str], at: &Path) -> Result<Self, String> {
        fs::create_dir_all(at).unwrap();
        run("mount", &[options, &[at.to_str().unwrap()]].concat()).map(|()| Self(at.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _gone = run("umount", &["--lazy", self.0.to_str().unwrap()]);
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

fn measure(roots: Roots, cgroup: &Path, pod: Option<&str>) -> (Arc<Usage>, Vec<String>) {
    let mut walker = Walker::start(&DiskUsageOptions::default(), roots).unwrap();
    walker.set_workloads(vec![WorkloadPlaces {
        workload: "pod".to_owned(),
        id: CgroupId(1),
        cgroup: cgroup.to_owned(),
        pod: pod.map(|uid| PodUid(uid.to_owned())),
        layers: Vec::new(),
        is_limited: false,
        trusts_quotas: true,
    }]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let measured = async {
        loop {
            let usages = walker.usages();
            if let Some(usage) = usages.get("pod", CgroupId(1)).filter(|_| usages.effort.measured > 0) {
                return (Arc::clone(usage), usages.degradations.clone());
            }
            walker.changed().await;
        }
    };
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), measured).await }).unwrap()
}

/// A process whose root is an overlay. It keeps a file of 3 MiB, and has a deleted file of 5 MiB open.
#[test]
fn a_writable_layer_is_found_by_the_root_of_a_process() {
    const TEST: &str = "a_writable_layer_is_found_by_the_root_of_a_process";
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| directory.path().join(name);
    for name in ["upper", "work"] {
        fs::create_dir(path(name)).unwrap();
    }
    let layers = format!("lowerdir=/usr,upperdir={},workdir={}", path("upper").display(), path("work").display());
    let root = match Mounted::new(&["-t", "overlay", "overlay", "-o", &layers], &path("root")) {
        Ok(root) => root,
        Err(error) => {
            tell!("SKIPPED {TEST}: {error}");
            return;
        }
    };
    // A cgroup of v1 or v2, whichever can be created: only its name in /proc/PID/cgroup matters.
    let hierarchies = ["/sys/fs/cgroup/memory", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let parent = format!("npm-test-disk-{}", std::process::id());
    let made = hierarchies.iter().map(|root| Path::new(root).join(&parent)).find(|path| fs::create_dir(path).is_ok());
    let Some(pod) = made else {
        tell!("SKIPPED {TEST}: cannot make a cgroup");
        return;
    };
    let container = pod.join(format!("cri-containerd-{ID}.scope"));
    fs::create_dir(&container).unwrap();
    let script = "dd if=/dev/zero of=/kept bs=1M count=3 2>/dev/null; dd if=/dev/zero of=/gone bs=1M count=5 2>/dev/null; \
                  exec 9</gone; rm /gone; dd if=/dev/zero of=/hidden bs=1M count=2 2>/dev/null; \
                  setpriv --pdeathsig KILL unshare --mount \
                  sh -c 'exec 9<&- 8</hidden; rm /hidden; echo ready; exec sleep 60' & exec sleep 60";
    // The shell moves into the cgroup, then into its own mounts and root, as a runtime does.
    let enter = format!(
        "echo $$ > {}/cgroup.procs && exec unshare --mount chroot {} /bin/sh -c \"$0\"",
        container.display(),
        root.0.display()
    );
    // The overlay does not contain the devices.
    fs::create_dir_all(root.0.join("dev")).unwrap();
    let zero = Mounted::new(&["--bind", "/dev"], &root.0.join("dev"));
    let child = Command::new("sh").args(["-c", &enter, script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut child = Running(child);
    let mut line = String::new();
    let stdout = child.0.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
    assert_eq!(line, "ready\n");

    let (usage, degradations) = measure(Roots::new("/proc".into()), &pod, None);
    drop((child, zero, root));
    for cgroup in [&container, &pod] {
        for _ in 0..100 {
            if fs::remove_dir(cgroup).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let part = usage.parts.iter().find(|part| part.part == Part::WritableLayer { container: ID.to_owned() });
    let held = part.unwrap_or_else(|| panic!("{usage:?} {degradations:?}")).held;
    assert!(held.bytes >= Bytes(10 * MIB) && held.bytes < Bytes(11 * MIB), "{usage:?} {degradations:?}");
    // The upper directory, /kept, /dev, and the files deleted by this process and by one with its own mounts.
    assert_eq!(held.inodes, 5, "{usage:?}");
}

#[test]
fn a_mount_over_a_volume_is_not_counted() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| directory.path().join(name);
    let volumes = path(&format!("kubelet/pods/{UID}/volumes/kubernetes.io~empty-dir"));
    for name in ["cache", "memory", "remote"] {
        fs::create_dir_all(volumes.join(name)).unwrap();
    }
    fs::create_dir(path("elsewhere")).unwrap();
    fs::write(path("elsewhere/large"), vec![1; 3 << 20]).unwrap();
    fs::write(volumes.join("cache/own"), vec![1; 1 << 20]).unwrap();
    let elsewhere = path("elsewhere");
    let mounted = [
        Mounted::new(&["--bind", elsewhere.to_str().unwrap()], &volumes.join("cache/bind")),
        Mounted::new(&["-t", "tmpfs", "-o", "size=1m", "tmpfs"], &volumes.join("memory")),
        // Stands for any filesystem that may hang.
        Mounted::new(&["-t", "proc", "proc"], &volumes.join("remote")),
    ];
    if let Some(error) = mounted.iter().find_map(|mounted| mounted.as_ref().err()) {
        tell!("SKIPPED a_mount_over_a_volume_is_not_counted: {error}");
        return;
    }
    fs::write(volumes.join("memory/file"), vec![1; 100_000]).unwrap();
    let roots = Roots { kubelet: path("kubelet"), ..Roots::new("/proc".into()) };
    let (usage, degradations) = measure(roots, Path::new("/nonexistent"), Some(UID));
    drop(mounted);
    let volume = |name: &str| usage.parts.iter().find(|part| part.part == Part::Volume { name: name.to_owned() });
    let cache = volume("cache").unwrap().held;
    assert!(cache.bytes >= Bytes(MIB) && cache.bytes < Bytes(2 * MIB) && cache.inodes <= 3, "{usage:?}");
    let memory = Part::MemoryVolume { name: "memory".to_owned() };
    let memory = usage.parts.iter().find(|part| part.part == memory).unwrap();
    assert_eq!((memory.source, memory.held.inodes), (Source::Filesystem, 2), "{usage:?}");
    assert!(volume("remote").is_none() && !usage.is_complete, "{usage:?}");
    assert!(degradations.iter().any(|reason| reason.contains("a proc is mounted over a volume")), "{degradations:?}");
}

/// `struct fsxattr` of `<linux/fs.h>`.
#[repr(C)]
struct Attributes {
    flags: u32,
    extent_size: u32,
    extents: u32,
    project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

/// Charges every file that is created in a directory to a project.
fn set_project(directory: &Path, project: u32) {
    const SET: rustix::ioctl::Opcode = opcode::write::<Attributes>(b'X', 32);
    let attributes =
        Attributes { flags: 0x200, extent_size: 0, extents: 0, project, copy_extent_size: 0, padding: [0; 8] };
    let directory = File::open(directory).unwrap();
    // SAFETY: the request takes one `fsxattr`, whose layout `Attributes` has.
    let setter = unsafe { Setter::<SET, Attributes>::new(attributes) };
    // SAFETY: see above.
    unsafe { rustix::ioctl::ioctl(directory, setter) }.unwrap();
}

/// A pod with two volumes, one of them a project, on a filesystem that counts projects.
fn quota(test: &str, make: &[&str], size: u64) {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |name: &str| directory.path().join(name);
    let image = path("image");
    // The image is sparse: hardly any of it is written.
    File::create(&image).unwrap().set_len(size).unwrap();
    let image = image.to_str().unwrap();
    let kubelet = path("var/lib/kubelet");
    let made = run(make[0], &[&make[1..], &[image]].concat());
    let mounted = made.and_then(|()| Mounted::new(&["-o", "loop,prjquota", image], &kubelet));
    let Ok(mounted) = mounted.map_err(|error| {
        tell!("SKIPPED {test}: {error}");
    }) else {
        return;
    };
    fs::create_dir_all(path("proc/1")).unwrap();
    symlink(directory.path(), path("proc/1/root")).unwrap();
    let volume = |name: &str| kubelet.join("pods").join(UID).join("volumes/kubernetes.io~empty-dir").join(name);
    for name in ["counted", "walked"] {
        fs::create_dir_all(volume(name)).unwrap();
    }
    set_project(&volume("counted"), 1_048_577);
    for name in ["counted", "walked"] {
        fs::create_dir(volume(name).join("below")).unwrap();
        fs::write(volume(name).join("below/file"), vec![1; 3 << 20]).unwrap();
    }
    let gone = volume("counted").join("gone");
    let mut open = File::create(&gone).unwrap();
    open.write_all(&vec![1; 2 << 20]).unwrap();
    fs::remove_file(&gone).unwrap();
    // Space is charged when it is allocated.
    open.sync_all().unwrap();
    run("sync", &["--file-system", kubelet.to_str().unwrap()]).unwrap();

    let (usage, degradations) = measure(Roots::new(path("proc")), Path::new("/nonexistent"), Some(UID));
    let of = |name: &str| {
        let part = usage.parts.iter().find(|part| part.part == Part::Volume { name: name.to_owned() });
        assert!(part.is_some(), "{usage:?} {degradations:?}");
        part.map(|part| (part.held, part.source)).unwrap()
    };
    let (counted, walked) = (of("counted"), of("walked"));
    drop(open);
    drop(mounted);
    if counted.1 != Source::Quota {
        tell!("SKIPPED {test}: this kernel counts no projects: {degradations:?}");
        return;
    }
    let near = |held: Held, mib: u64| held.bytes.0.abs_diff(mib * MIB) < 64 * 1024;
    assert!(near(counted.0, 5), "the deleted file is counted: {usage:?}");
    // The volume, a directory, a file and the deleted file.
    assert_eq!(counted.0.inodes, 4, "{usage:?}");
    assert!(near(walked.0, 3) && walked.0.inodes == 3 && walked.1 == Source::Walk, "{usage:?}");
}

#[test]
fn project_quotas_of_ext4_are_read() {
    let make = ["mkfs.ext4", "-q", "-F", "-O", "quota,project", "-E", "quotatype=prjquota"];
    quota("project_quotas_of_ext4_are_read", &make, 64 * MIB);
}

#[test]
fn project_quotas_of_xfs_are_read() {
    quota("project_quotas_of_xfs_are_read", &["mkfs.xfs", "-q", "-f"], 512 * MIB);
}
