//! The values of `oom_score_adj` that the agent has replaced, in a file: they can be restored after the agent has ended.
//!
//! Each line is appended by one write(2) before the value is replaced, and is a process, its two values, and the cgroup of its workload.
//! The file is beside the lock, usually on a tmpfs. A line that was cut off is ignored, or names values that its process does not have: its
//! process was not touched.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::node::process_facts::start_time;
use crate::node::replaced_file::replace;
use crate::units::{CgroupId, Pid, boot_id, kernel_text};

/// Identifies a process over time: a pid is reused, but not within the same clock tick.
pub(super) type Process = (Pid, u64);

/// Most processes in the record. More are not given a value.
const MOST: usize = 16_384;
/// Most of them in one workload. A workload with very many processes must not keep all others out.
const MOST_OF_WORKLOAD: usize = MOST / 4;
/// The most changed processes that are named.
const NAMED: usize = 16;
/// Bytes; no file of ours is that large.
const LARGEST: u64 = 4 << 20;
/// The file is written anew when so many of its lines are out of date.
const STALE_LINES: usize = 4096;
/// With each new process so many others are checked for their end.
const CHECKED: usize = 2;

/// The value that a process had, and the one that the agent gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Values {
    before: i16,
    written: i16,
    /// `None` in a line without it, as agents before this rule wrote.
    workload: Option<CgroupId>,
}

/// The record. It is empty after a reboot.
#[derive(Debug)]
pub struct ScoreRecord {
    path: PathBuf,
    boot: String,
    values: HashMap<Process, Values>,
    /// The same processes, in the order in which they are checked for their end.
    order: VecDeque<Process>,
    /// The number of recorded processes of each workload.
    of_workload: HashMap<CgroupId, usize>,
    file: Option<File>,
    lines: usize,
}

/// The outcomes for the recorded processes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Restored {
    /// Processes that have the value from before the agent again.
    pub restored: usize,
    /// Processes that have got another value since, not from the agent. They are left alone.
    pub changed: usize,
    /// The first ones of them, with their present values.
    pub named: Vec<(Pid, i16)>,
    /// Processes that have ended.
    pub ended: usize,
    /// Processes whose value could not be written. They stay in the record.
    pub failed: usize,
    /// The first reason.
    pub error: Option<String>,
}

enum Outcome {
    Restored,
    /// The process has this value, which the agent did not write.
    Changed(i16),
    Ended,
}

impl ScoreRecord {
    /// Returns the path of the record beside this lock file.
    pub fn path(lock_file: &Path) -> PathBuf {
        lock_file.with_added_extension("oom-scores")
    }

    /// Opens the record beside this lock file, with what an earlier agent of this boot has written. A file that cannot be read counts as
    /// empty: it names no process for certain.
    pub fn beside(lock_file: &Path) -> Self {
        let (path, boot) = (Self::path(lock_file), boot_id());
        let (values, order, of_workload) = (HashMap::new(), VecDeque::new(), HashMap::new());
        let mut record = Self { path, boot, values, order, of_workload, file: None, lines: 0 };
        let mut text = String::new();
        let _unreadable = File::open(&record.path).and_then(|file| file.take(LARGEST).read_to_string(&mut text));
        let mut lines = text.lines();
        if lines.next() == Some(record.boot.as_str()) {
            for (process, values) in lines.filter_map(parse).take(MOST * 8) {
                record.keep(process, values);
            }
        }
        record
    }

    /// Returns the value from before the agent and the one that the agent has written, of a process whose value the agent has replaced.
    pub(super) fn values(&self, process: Process) -> Option<(i16, i16)> {
        self.values.get(&process).map(|values| (values.before, values.written))
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Notes that the value of a process of `workload` is about to be replaced.
    ///
    /// # Errors
    /// When that cannot be noted. The value must then stay as it is.
    pub(super) fn note(
        &mut self,
        process: Process,
        workload: CgroupId,
        (found, written): (i16, i16),
        proc_root: &Path,
    ) -> Result<(), String> {
        self.forget_ended(proc_root);
        let known = self.values.get(&process).filter(|known| known.written == found);
        let values = Values { before: known.map_or(found, |known| known.before), written, workload: Some(workload) };
        if !self.values.contains_key(&process) {
            let is_full = |count, most, of: &str| {
                let path = self.path.display();
                if count < most {
                    Ok(())
                } else {
                    Err(format!("{path} has the values of {most} processes{of} already"))
                }
            };
            is_full(self.values.len(), MOST, "")?;
            let of_workload = self.of_workload.get(&workload).copied().unwrap_or(0);
            is_full(of_workload, MOST_OF_WORKLOAD, " of this workload")?;
        }
        self.keep(process, values);
        let appended = match &mut self.file {
            Some(file) if self.lines <= self.values.len() + STALE_LINES => {
                self.lines += 1;
                file.write_all(line(process, values).as_bytes())
            }
            _ => self.rewrite(),
        };
        appended.map_err(|error| {
            // The next attempt writes the whole file.
            self.file = None;
            format!("cannot write {}: {error}", self.path.display())
        })
    }

    fn keep(&mut self, process: Process, values: Values) {
        match self.values.insert(process, values) {
            Some(known) => self.discount(known),
            None => self.order.push_back(process),
        }
        if let Some(workload) = values.workload {
            *self.of_workload.entry(workload).or_default() += 1;
        }
    }

    /// Takes a process off the count of its workload.
    fn discount(&mut self, values: Values) {
        if let Some(workload) = values.workload
            && let Some(count) = self.of_workload.get_mut(&workload)
        {
            *count -= 1;
            if *count == 0 {
                self.of_workload.remove(&workload);
            }
        }
    }

    fn forget_ended(&mut self, proc_root: &Path) {
        for _ in 0..CHECKED {
            let Some(process) = self.order.pop_front() else { return };
            if proc_root.join(process.0.0.to_string()).exists() {
                self.order.push_back(process);
            } else if let Some(values) = self.values.remove(&process) {
                self.discount(values);
            }
        }
    }

    fn rewrite(&mut self) -> std::io::Result<()> {
        let lines: String = self.values.iter().map(|(process, values)| line(*process, *values)).collect();
        let file = replace(&self.path, |file| file.write_all(format!("{}\n{lines}", self.boot).as_bytes()))?;
        (self.file, self.lines) = (Some(file), self.values.len());
        Ok(())
    }

    /// Gives every recorded process the value that it had before the agent, unless it has another value than the agent gave it. Empties the
    /// record, except for processes whose value cannot be written.
    pub fn restore(&mut self, proc_root: &Path) -> Restored {
        let mut restored = Restored::default();
        let values = std::mem::take(&mut self.values);
        self.order.clear();
        self.of_workload.clear();
        for (process, values) in values {
            match restore(proc_root, process, values) {
                Ok(Outcome::Restored) => restored.restored += 1,
                Ok(Outcome::Changed(value)) => {
                    restored.changed += 1;
                    if restored.named.len() < NAMED {
                        restored.named.push((process.0, value));
                    }
                }
                Ok(Outcome::Ended) => restored.ended += 1,
                Err(errno) => {
                    restored.failed += 1;
                    let say = || format!("cannot set oom_score_adj of process {}: {errno}", process.0.0);
                    restored.error.get_or_insert_with(say);
                    self.keep(process, values);
                }
            }
        }
        let emptied = if self.values.is_empty() { self.remove() } else { self.rewrite() };
        if let Err(error) = emptied {
            restored.error.get_or_insert_with(|| format!("cannot empty {}: {error}", self.path.display()));
        }
        restored
    }

    fn remove(&mut self) -> std::io::Result<()> {
        self.file = None;
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn line((Pid(pid), started): Process, Values { before, written, workload }: Values) -> String {
    let workload = workload.map(|CgroupId(id)| format!(" {id}")).unwrap_or_default();
    format!("{pid} {started} {before} {written}{workload}\n")
}

/// Parses a line. One that was cut off has fewer fields, or is followed by no other.
fn parse(line: &str) -> Option<(Process, Values)> {
    let mut fields = line.split(' ');
    let process = (Pid(fields.next()?.parse().ok()?), fields.next()?.parse().ok()?);
    let (before, written) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let workload = fields.next().map(|field| field.parse().map(CgroupId)).transpose().ok()?;
    fields.next().is_none().then_some((process, Values { before, written, workload }))
}

/// Restores one value through the open directory of the process: a reused pid has another directory.
fn restore(proc_root: &Path, (pid, began): Process, values: Values) -> Result<Outcome, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let restored = rustix::fs::open(proc_root.join(pid.0.to_string()), flags, Mode::empty()).and_then(|directory| {
        let open = |name, flags| rustix::fs::openat(&directory, name, flags | OFlags::CLOEXEC, Mode::empty());
        let read = |name| {
            let mut bytes = Vec::new();
            let read = File::from(open(name, OFlags::RDONLY)?).read_to_end(&mut bytes);
            // `stat` has the name of the process, which any process chooses and the kernel cuts.
            read.map(|_| kernel_text::text(bytes)).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
        };
        if start_time(&read("stat")?) != Some(began) {
            return Ok(Outcome::Ended);
        }
        let value = read("oom_score_adj")?.trim().parse().map_err(|_| Errno::INVAL)?;
        if value != values.written {
            return Ok(Outcome::Changed(value));
        }
        rustix::io::write(open("oom_score_adj", OFlags::WRONLY)?, values.before.to_string().as_bytes())?;
        Ok(Outcome::Restored)
    });
    match restored {
        Err(Errno::NOENT | Errno::SRCH) => Ok(Outcome::Ended),
        restored => restored,
    }
}

#[cfg(test)]
#[path = "score_record_tests.rs"]
mod tests;
