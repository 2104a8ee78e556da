//! Finds the process that holds a lock on a file.

use crate::units::kernel_text;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Returns the process that holds the `flock` lock on the file, from `/proc/locks`. Trying the lock could refuse a starting process.
pub fn holder(proc_root: &Path, file: &Path) -> Option<i32> {
    let found = fs::metadata(file).ok()?;
    let device = found.dev();
    let wanted = format!("{:02x}:{:02x}:{}", rustix::fs::major(device), rustix::fs::minor(device), found.ino());
    holder_in(&kernel_text::read(proc_root.join("locks")).ok()?, &wanted)
}

fn holder_in(locks: &str, wanted: &str) -> Option<i32> {
    locks.lines().find_map(|line| {
        // 1: FLOCK  ADVISORY  WRITE 1234 00:1a:5678 0 EOF; a waiter has an arrow after its number.
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, "FLOCK", _, "WRITE", pid, file, ..] = fields[..] else { return None };
        pid.parse().ok().filter(|_| file == wanted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found_in_proc_locks() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 00:1a:77 0 EOF\n2: FLOCK  ADVISORY  READ 12 00:1a:77 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 00:1a:777 0 EOF\n4: FLOCK  ADVISORY  WRITE 14 00:1a:77 0 EOF\n\
                     4: -> FLOCK  ADVISORY  WRITE 15 00:1a:77 0 EOF\n";
        assert_eq!(holder_in(locks, "00:1a:77"), Some(14));
        assert_eq!(holder_in(locks, "08:01:77"), None);
        assert_eq!(holder_in("", "08:01:77"), None);
    }
}
