use std::ffi::CString;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::fs::CWD;

use super::*;
use crate::disk::host_files::Host;

fn begin(path: &Path) -> TreeWalk {
    let host = Host::at("/".into());
    TreeWalk::begin(&host.open(path).unwrap()).unwrap()
}

fn walk(path: &Path) -> TreeWalk {
    let mut walk = begin(path);
    let mut buffer = [MaybeUninit::uninit(); NAMES];
    while walk.step(&mut buffer) == Progress::More {}
    walk
}

/// Returns the figure of `du` as an independent reference.
fn du(path: &Path, what: &str) -> u64 {
    let output = Command::new("du").args(["--summarize", "--one-file-system", what]).arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn the_sums_agree_with_du() {
    let top = tempfile::tempdir().unwrap();
    for directory in 0..20 {
        let directory = top.path().join(format!("d{directory}/a/b"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..60 {
            fs::write(directory.join(format!("a-file-with-a-rather-long-name-{file}")), vec![1; file * 700]).unwrap();
        }
    }
    // A hole uses no space.
    fs::File::create(top.path().join("sparse")).unwrap().set_len(1 << 30).unwrap();
    // The file has several names.
    fs::write(top.path().join("one"), vec![1; 100_000]).unwrap();
    for name in 0..50 {
        fs::hard_link(top.path().join("one"), top.path().join(format!("d3/name{name}"))).unwrap();
    }
    symlink("/usr", top.path().join("link")).unwrap();
    symlink("nowhere", top.path().join("dangling")).unwrap();

    let found = walk(top.path());
    assert!(found.is_complete());
    assert_eq!(found.held().inodes, du(top.path(), "--inodes"));
    assert_eq!(found.held().bytes.0, du(top.path(), "--block-size=1"));
    assert_eq!(found.entries(), found.held().inodes + 50);
    assert_eq!(found.device(), device(&status(fs::File::open(top.path()).unwrap()).unwrap()));
}

#[test]
fn a_single_file_is_a_tree_and_a_link_is_not_followed() {
    let top = tempfile::tempdir().unwrap();
    let file = top.path().join("file");
    fs::write(&file, vec![1; 10_000]).unwrap();
    let expected = fs::metadata(&file).unwrap().blocks() * 512;
    assert_eq!(walk(&file).held(), Held { bytes: Bytes(expected), inodes: 1 });
    symlink("/usr", top.path().join("link")).unwrap();
    assert_eq!(walk(&top.path().join("link")).held().inodes, 1);
}

const NAME: &CStr = c"a-directory-with-a-long-name";

/// Creates `depth` nested directories.
fn deep(top: &Path, depth: usize) -> OwnedFd {
    let mut directory = fs::File::open(top).map(OwnedFd::from).unwrap();
    for _ in 0..depth {
        rustix::fs::mkdirat(&directory, NAME, 0o700.into()).unwrap();
        directory = open_directory(&directory, NAME).unwrap();
    }
    directory
}

fn fill(directory: &OwnedFd, name: &CStr, bytes: usize) {
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    let file = rustix::fs::openat(directory, name, flags, 0o600.into()).unwrap();
    fs::File::from(file).write_all(&vec![1; bytes]).unwrap();
}

#[test]
fn a_tree_deeper_than_the_open_levels_is_walked() {
    let top = tempfile::tempdir().unwrap();
    let depth = MAX_OPEN * 4;
    // Each of the lower levels has further entries, so the walk must return to it.
    let mut directory = deep(top.path(), depth);
    for level in 0..depth / 2 {
        fill(&directory, c"large", 100_000);
        for number in 0..level {
            let name = CString::new(number.to_string()).unwrap();
            rustix::fs::mkdirat(&directory, &name, 0o700.into()).unwrap();
            fill(&open_directory(&directory, &name).unwrap(), c"file", 5000);
        }
        directory = open_directory(&directory, c"..").unwrap();
    }
    let mut walk = begin(top.path());
    let mut buffer = [MaybeUninit::uninit(); NAMES];
    while walk.step(&mut buffer) == Progress::More {
        assert!(walk.open.len() <= MAX_OPEN && walk.deep.len() <= depth);
    }
    assert!(walk.is_complete() && walk.omission().is_none(), "{walk:?}");
    assert_eq!(walk.held().inodes, du(top.path(), "--inodes"));
    assert_eq!(walk.held().bytes.0, du(top.path(), "--block-size=1"));
}

#[test]
fn many_directories_deep_down_are_all_walked() {
    let top = tempfile::tempdir().unwrap();
    let directory = deep(top.path(), MAX_OPEN + 2);
    for number in 0..700 {
        let name = CString::new(format!("directory-{number}")).unwrap();
        rustix::fs::mkdirat(&directory, &name, 0o700.into()).unwrap();
        fill(&open_directory(&directory, &name).unwrap(), c"hidden", 4096);
    }
    let found = walk(top.path());
    assert!(found.is_complete());
    assert_eq!(found.held().inodes, du(top.path(), "--inodes"));
    assert_eq!(found.held().bytes.0, du(top.path(), "--block-size=1"));
}

#[test]
fn a_directory_moved_during_the_walk_is_incomplete() {
    let top = tempfile::tempdir().unwrap();
    let bottom = deep(top.path(), MAX_OPEN * 2);
    let above = open_directory(&bottom, c"..").unwrap();
    let mut walk = begin(top.path());
    let mut buffer = [MaybeUninit::uninit(); NAMES];
    while walk.deep.len() <= MAX_OPEN {
        assert_eq!(walk.step(&mut buffer), Progress::More);
    }
    let elsewhere = fs::File::open(top.path()).unwrap();
    rustix::fs::renameat(&above, NAME, &elsewhere, c"moved").unwrap();
    while walk.step(&mut buffer) == Progress::More {}
    assert!(!walk.is_complete() && walk.omission().unwrap().contains("moved"), "{walk:?}");
}

#[test]
fn the_walk_of_a_growing_tree_ends() {
    let top = tempfile::tempdir().unwrap();
    for number in 0..600 {
        fs::write(top.path().join(number.to_string()), "").unwrap();
    }
    let mut walk = begin(top.path());
    walk.most = 10;
    let mut buffer = [MaybeUninit::uninit(); NAMES];
    while walk.step(&mut buffer) == Progress::More {}
    assert!(walk.held().inodes < 600 && walk.omission().unwrap().contains("faster"), "{walk:?}");
}

#[test]
fn changes_during_the_walk_are_tolerated() {
    let top = tempfile::tempdir().unwrap();
    for directory in 0..50 {
        fs::create_dir(top.path().join(directory.to_string())).unwrap();
    }
    let mut walk = begin(top.path());
    let mut buffer = [MaybeUninit::uninit(); NAMES];
    assert_eq!(walk.step(&mut buffer), Progress::More);
    for directory in 0..50 {
        fs::remove_dir(top.path().join(directory.to_string())).unwrap();
        // The former directory is now a link.
        symlink("/usr", top.path().join(directory.to_string())).unwrap();
    }
    while walk.step(&mut buffer) == Progress::More {}
    assert!(walk.held().inodes <= 51, "{walk:?}");
}

/// Renames without pause until it is dropped.
struct Renamer {
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Renamer {
    fn start(mut turn: impl FnMut() + Send + 'static) -> Self {
        let is_stopping = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&is_stopping);
        let thread = std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                turn();
            }
        });
        Self { is_stopping, thread: Some(thread) }
    }

    /// Gives a file or directory another name, and its own again.
    fn to_and_fro([own, other]: [PathBuf; 2]) -> Self {
        Self::start(move || {
            fs::rename(&own, &other).unwrap();
            fs::rename(&other, &own).unwrap();
        })
    }
}

impl Drop for Renamer {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Files beside what is renamed. Their status is read between the read of a name and its own entry, which takes long enough for a rename.
const DECOYS: u64 = 60;

fn decoys(directory: &Path) {
    (0..DECOYS).for_each(|number| fs::write(directory.join(format!("decoy{number}")), "").unwrap());
}

/// Walks until enough walks have been complete. Asserts that no complete walk has missed anything besides the decoys.
fn expect_nothing_hidden(top: &Path, inodes: u64) {
    let inodes = inodes + DECOYS;
    let complete = (0..2000).map(|_| walk(top)).filter(TreeWalk::is_complete);
    let seen: Vec<u64> = complete.map(|walk| walk.held().inodes).take(100).collect();
    assert!(!seen.is_empty(), "no walk was complete");
    assert!(seen.iter().all(|seen| *seen >= inodes), "{seen:?}");
}

fn hidden_files(directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    for number in 0..50 {
        fs::write(directory.join(number.to_string()), "").unwrap();
    }
}

#[test]
fn directories_renamed_after_their_names_are_read_are_counted() {
    let top = tempfile::tempdir().unwrap();
    let path = |name: &str, number: usize| top.path().join(format!("{name}{number}"));
    for number in 0..MAX_WAITING {
        fs::create_dir(path("a", number)).unwrap();
        fs::write(path("a", number).join("hidden"), vec![1; 10_000]).unwrap();
    }
    let expected = walk(top.path()).held();
    let mut walk = begin(top.path());
    let mut buffer = [MaybeUninit::uninit(); NAMES];
    assert_eq!(walk.step(&mut buffer), Progress::More);
    (0..MAX_WAITING).for_each(|number| fs::rename(path("a", number), path("b", number)).unwrap());
    while walk.step(&mut buffer) == Progress::More {}
    assert_eq!((walk.held(), walk.is_complete()), (expected, true));
}

#[test]
fn no_complete_walk_misses_a_directory_that_is_being_renamed() {
    let top = tempfile::tempdir().unwrap();
    decoys(top.path());
    let names = ["a", "b"].map(|name| top.path().join(name));
    hidden_files(&names[0]);
    let _renamer = Renamer::to_and_fro(names);
    expect_nothing_hidden(top.path(), 52);
}

#[test]
fn no_complete_walk_misses_a_file_that_is_being_renamed() {
    let top = tempfile::tempdir().unwrap();
    decoys(top.path());
    let names = ["a", "b"].map(|name| top.path().join(name));
    fs::write(&names[0], "").unwrap();
    let _renamer = Renamer::to_and_fro(names);
    expect_nothing_hidden(top.path(), 2);
}

#[test]
fn no_complete_walk_misses_a_directory_that_is_being_exchanged() {
    let top = tempfile::tempdir().unwrap();
    decoys(top.path());
    let names = ["a", "b"].map(|name| top.path().join(name));
    hidden_files(&names[0]);
    fs::write(&names[1], "").unwrap();
    let _renamer = Renamer::start(move || {
        let [a, b] = &names;
        rustix::fs::renameat_with(CWD, a, CWD, b, rustix::fs::RenameFlags::EXCHANGE).unwrap();
    });
    expect_nothing_hidden(top.path(), 53);
}

#[test]
fn no_complete_walk_misses_a_directory_renamed_deep_down() {
    let top = tempfile::tempdir().unwrap();
    let bottom = deep(top.path(), MAX_OPEN + 3);
    (0..DECOYS).for_each(|number| fill(&bottom, &CString::new(format!("decoy{number}")).unwrap(), 1));
    rustix::fs::mkdirat(&bottom, c"a", 0o700.into()).unwrap();
    let hidden = open_directory(&bottom, c"a").unwrap();
    (0..50).for_each(|number| fill(&hidden, &CString::new(format!("{number}")).unwrap(), 1));
    let _renamer = Renamer::start(move || {
        rustix::fs::renameat(&bottom, c"a", &bottom, c"b").unwrap();
        rustix::fs::renameat(&bottom, c"b", &bottom, c"a").unwrap();
    });
    expect_nothing_hidden(top.path(), MAX_OPEN as u64 + 3 + 52);
}

#[test]
fn removed_directories_make_the_walk_incomplete_and_end_it() {
    // As many that the walk, which opens one after the other, is not done before the first is removed.
    const MANY: usize = 30;
    let top = tempfile::tempdir().unwrap();
    let removals: Vec<_> = (0..MANY).map(|name| top.path().join(name.to_string())).collect();
    let _renamer = Renamer::start(move || {
        removals.iter().for_each(|removed| fs::create_dir(removed).unwrap());
        removals.iter().for_each(|removed| fs::remove_dir(removed).unwrap());
    });
    let is_missed = (0..20_000).map(|_| walk(top.path())).any(|walk| !walk.is_complete());
    assert!(is_missed, "every walk was faster than the removals");
}

#[test]
fn other_filesystems_are_not_entered() {
    // The tree of cgroups is mounted in /sys.
    let found = walk(Path::new("/sys/fs"));
    let sys = fs::metadata("/sys/fs").unwrap().dev();
    let is_other = |path: &str| fs::metadata(path).is_ok_and(|it| it.dev() != sys);
    if !is_other("/sys/fs/cgroup") {
        writeln!(std::io::stderr(), "SKIPPED: nothing is mounted at /sys/fs/cgroup").unwrap();
        return;
    }
    let cgroup = du(Path::new("/sys/fs"), "--inodes");
    assert!(found.held().inodes <= cgroup, "{} {cgroup}", found.held().inodes);
}

#[test]
fn names_beyond_the_limit_count_for_their_share() {
    let top = tempfile::tempdir().unwrap();
    fs::write(top.path().join("0"), vec![1; 4096]).unwrap();
    for name in 1..10 {
        fs::hard_link(top.path().join("0"), top.path().join(name.to_string())).unwrap();
    }
    let status = status(fs::File::open(top.path().join("0")).unwrap()).unwrap();
    let mut tally =
        Tally { linked: (0..MAX_LINKED as u64).map(|ino| u64::MAX - ino).collect(), ..Tally::on(DeviceId(0)) };
    for _ in 0..10 {
        tally.count(&status);
    }
    let held = tally.held();
    assert_eq!(held.inodes, 1);
    assert!(held.bytes.0.abs_diff(status.stx_blocks * 512) < 10, "{held:?}");
}
