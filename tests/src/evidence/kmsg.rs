//! The kernel's reports of OOM kills, from `/dev/kmsg`.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result};

/// One OOM kill as the kernel logged it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OomReport {
    /// The command name of the allocating process: "comm invoked oom-killer".
    pub trigger_comm: String,
    /// CONSTRAINT_NONE or CONSTRAINT_MEMCG.
    pub constraint: String,
    /// The cgroup that reached its limit; empty for a global OOM kill.
    pub oom_memcg: String,
    /// The victim's cgroup.
    pub task_memcg: String,
    pub victim_comm: String,
    pub victim_pid: i32,
}

/// Reads the records written since it was opened.
#[derive(Debug)]
pub struct Kmsg {
    file: File,
}

impl Kmsg {
    /// Opens the log at its end, because older records belong to other scenarios.
    pub fn open() -> Result<Self> {
        let mut file =
            OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").context("open /dev/kmsg")?;
        file.seek(SeekFrom::End(0)).context("seek /dev/kmsg")?;
        Ok(Self { file })
    }

    /// Returns the text of all records since the last call.
    pub fn messages(&mut self) -> Vec<String> {
        let mut messages = Vec::new();
        let mut record = [0_u8; 8192];
        loop {
            match self.file.read(&mut record) {
                Ok(0) => return messages,
                Ok(length) => {
                    let text = String::from_utf8_lossy(record.get(..length).unwrap_or_default());
                    // A record is "priority,sequence,microseconds,flags;text", then the lines of a dictionary.
                    if let Some((_, text)) = text.split_once(';') {
                        messages.push(text.lines().next().unwrap_or_default().to_owned());
                    }
                }
                // EPIPE: the kernel overwrote records before they were read. The next read continues after them.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(_) => return messages,
            }
        }
    }
}

/// Returns the OOM kills among these messages.
pub fn oom_reports(messages: &[String]) -> Vec<OomReport> {
    let mut reports = Vec::new();
    let mut trigger = String::new();
    for message in messages {
        if let Some((comm, _)) = message.split_once(" invoked oom-killer:") {
            comm.clone_into(&mut trigger);
        }
        if let Some(rest) = message.strip_prefix("oom-kill:") {
            let mut report = OomReport { trigger_comm: trigger.clone(), ..OomReport::default() };
            for pair in rest.split(',') {
                match pair.split_once('=') {
                    Some(("constraint", value)) => value.clone_into(&mut report.constraint),
                    Some(("oom_memcg", value)) => value.clone_into(&mut report.oom_memcg),
                    Some(("task_memcg", value)) => value.clone_into(&mut report.task_memcg),
                    Some(("task", value)) => value.clone_into(&mut report.victim_comm),
                    Some(("pid", value)) => report.victim_pid = value.parse().unwrap_or(0),
                    _ => {}
                }
            }
            reports.push(report);
        }
    }
    reports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memcg_kill_names_allocator_and_victim() {
        let messages = [
            "allocator invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/kubepods.slice,task_memcg=/kubepods.slice/a/b,task=victim,pid=77,uid=0",
            "Memory cgroup out of memory: Killed process 77 (victim)",
        ]
        .map(str::to_owned);
        let reports = oom_reports(&messages);
        assert_eq!(
            reports,
            vec![OomReport {
                trigger_comm: "allocator".to_owned(),
                constraint: "CONSTRAINT_MEMCG".to_owned(),
                oom_memcg: "/kubepods.slice".to_owned(),
                task_memcg: "/kubepods.slice/a/b".to_owned(),
                victim_comm: "victim".to_owned(),
                victim_pid: 77,
            }]
        );
    }

    #[test]
    fn other_messages_are_no_kills() {
        assert!(oom_reports(&["random: crng init done".to_owned()]).is_empty());
    }
}
