//! Makes short-lived children that a memory cgroup's limit kills one after the other, and records each.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Doom;
use super::memory::{Memory, sleep_for_ever};
use crate::cgroups::Cgroup;

/// The number of tries for each young victim. After these the machine is too slow to make one.
const TRIES_EACH: u32 = 3;

/// The placeholder in a container's path. Three hexadecimal digits replace it, different for each victim.
pub const NUMBER: &str = "NNN";

/// Writes one line for each kill: pid, the container's kernfs id, the lifetime in microseconds, the container.
pub fn doom(doom: &Doom) -> Result<()> {
    let mut account = File::create(&doom.account).with_context(|| format!("create {}", doom.account.display()))?;
    let (mut counted, mut tried) = (0, 0);
    while counted < doom.count && tried < doom.count * TRIES_EACH {
        tried += 1;
        let path = doom.container.replace(NUMBER, &format!("{tried:03x}"));
        let container = Cgroup::create(doom.layout, &path)?;
        container.limit(doom.kib * 1024)?;
        let id = fs::metadata(container.directory()).with_context(|| format!("stat {path}"))?.ino();
        let (pid, lived) = kill_one(doom, &container)?;
        if doom.remove {
            // The container is removed at once, so that no program can read its directory to attribute the kill.
            container.remove()?;
        }
        writeln!(account, "{pid} {id} {} {path}", lived.as_micros()).context("write the account")?;
        if lived < Duration::from_millis(doom.younger_than_ms) {
            counted += 1;
        }
    }
    if doom.stay {
        sleep_for_ever();
    }
    Ok(())
}

fn kill_one(doom: &Doom, container: &Cgroup) -> Result<(i32, Duration)> {
    // The files are opened before the fork, so that the child allocates only the memory that kills it.
    let doors: Vec<File> = container
        .directories()
        .map(|directory| open_for_writing(&directory.join("cgroup.procs")))
        .collect::<Result<_>>()?;
    let born = Instant::now();
    // SAFETY: this process has one thread, so the child may do anything.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let _ = die(&doors, doom);
        // SAFETY: _exit has no memory arguments. The status shows that the child was not killed.
        unsafe { libc::_exit(1) };
    }
    let mut status = 0;
    // SAFETY: waitpid writes one int, which lives across the call.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    let lived = born.elapsed();
    if waited != pid || !libc::WIFSIGNALED(status) || libc::WTERMSIG(status) != libc::SIGKILL {
        bail!("the child in {} was not killed: status {status:#x}", container.path);
    }
    Ok((pid, lived))
}

fn die(doors: &[File], doom: &Doom) -> Result<()> {
    for mut door in doors {
        door.write_all(b"0").context("enter the container")?;
    }
    // The container may have other processes, which must survive.
    fs::write("/proc/self/oom_score_adj", "1000").context("write /proc/self/oom_score_adj")?;
    sleep(Duration::from_millis(doom.age_ms));
    Memory::reserve(doom.kib * 2048)?.touch_all();
    Ok(())
}

fn open_for_writing(path: &Path) -> Result<File> {
    OpenOptions::new().write(true).open(path).with_context(|| format!("open {}", path.display()))
}

/// One kill, as the parent of the victim recorded it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    pub pid: i32,
    pub container_id: u64,
    pub lived: Duration,
    pub container: String,
}

/// Reads the records of a file.
pub fn deaths(account: &Path) -> Result<Vec<Death>> {
    let text = fs::read_to_string(account).with_context(|| format!("read {}", account.display()))?;
    text.lines().map(|line| death(line).with_context(|| format!("malformed account: {line:?}"))).collect()
}

fn death(line: &str) -> Option<Death> {
    let mut words = line.split(' ');
    Some(Death {
        pid: words.next()?.parse().ok()?,
        container_id: words.next()?.parse().ok()?,
        lived: Duration::from_micros(words.next()?.parse().ok()?),
        container: words.next()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_read_back() {
        assert_eq!(
            death("77 4711 12500 kubepods.slice/a/b"),
            Some(Death {
                pid: 77,
                container_id: 4711,
                lived: Duration::from_micros(12_500),
                container: "kubepods.slice/a/b".to_owned(),
            })
        );
        assert_eq!(death("77 4711"), None);
    }
}
