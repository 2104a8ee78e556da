//! OOM kills from the kernel's log, `/dev/kmsg`, for machines where the eBPF programs do not report them.

mod oom_report;
mod pairing;

use std::os::fd::OwnedFd;
use std::path::Path;

use crate::units::{kernel_text, privileges};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub use oom_report::{OomLog, OomReport};
pub use pairing::Pairing;

pub const PATH: &str = "/dev/kmsg";
/// The kernel's bound on a record with its head and dictionary (`PRINTK_MESSAGE_MAX` since Linux 6.4, `CONSOLE_EXT_LOG_MAX` before).
/// A read into a smaller buffer fails.
const LONGEST: usize = 8192;
/// The most records per call. The report of one OOM kill has a line for every process of its domain.
const RECORDS_PER_READ: usize = 1024;
/// The facility's position in the priority. Facility 0 is the kernel, and the kernel assigns it to no process.
const FACILITY_SHIFT: u32 = 3;

/// Reads the log from the time of opening on.
#[derive(Debug)]
pub struct Kmsg {
    file: AsyncFd<OwnedFd>,
    record: Box<[u8]>,
    log: OomLog,
    next: Option<u64>,
    lost: u64,
}

impl Kmsg {
    /// Opens the log at its end. Must be called within the tokio runtime. Fails when the log cannot be read.
    pub fn open(path: &Path) -> Result<Self, String> {
        let failed = |what: &str, error: std::io::Error| {
            let mend = match error.kind() {
                std::io::ErrorKind::PermissionDenied => privileges::grant("CAP_SYSLOG", privileges::is_root()),
                _ => "make the machine's log visible (in a container: mount the host's /dev/kmsg)".to_owned(),
            };
            format!("cannot {what} {}: {error}; {mend}", path.display())
        };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| failed("open", errno.into()))?;
        rustix::fs::seek(&file, SeekFrom::End(0)).map_err(|errno| failed("seek to the end of", errno.into()))?;
        // SAFETY: the AsyncFd owns the descriptor, which stays open and unchanged until the AsyncFd is dropped.
        let registered = unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) };
        let file = registered.map_err(|error| failed("poll", error.into()))?;
        Ok(Self { file, record: vec![0; LONGEST].into_boxed_slice(), log: OomLog::default(), next: None, lost: 0 })
    }

    /// Waits until the log has new records. Cancel-safe.
    pub async fn readable(&self) {
        match self.file.readable().await {
            // The next read empties the log, or leaves records for which poll signals readiness again.
            Ok(mut guard) => guard.clear_ready(),
            // The reactor has ended, and the loop with it.
            Err(_) => std::future::pending().await,
        }
    }

    /// Appends the OOM kills logged since the last call to `out`. Returns whether unread records may be left.
    pub fn read(&mut self, out: &mut Vec<OomReport>) -> bool {
        for _ in 0..RECORDS_PER_READ {
            match rustix::io::read(self.file.get_ref(), &mut *self.record) {
                Ok(0) | Err(Errno::AGAIN) => return false,
                Ok(length) => {
                    let record = self.record.get(..length).unwrap_or_default();
                    let Some(record) = Record::parse(record) else { continue };
                    self.lost += self.next.map_or(0, |next| record.sequence.saturating_sub(next));
                    self.next = Some(record.sequence + 1);
                    if record.by_kernel && record.is_continued {
                        self.log.continued(&unescaped(record.text));
                    } else if record.by_kernel {
                        out.extend(self.log.line(record.at_us, &unescaped(record.text)));
                    }
                }
                // Records were overwritten before the read. The next sequence number tells how many.
                Err(Errno::PIPE) => self.log.forget(),
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Returns how many records were overwritten before they could be read.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// One record: `priority,sequence,microseconds,flags[,…];text`, then lines of a dictionary.
#[derive(Debug, PartialEq, Eq)]
struct Record<'r> {
    by_kernel: bool,
    sequence: u64,
    at_us: u64,
    /// Whether the record continues a line that another line interrupted.
    is_continued: bool,
    text: &'r str,
}

impl<'r> Record<'r> {
    fn parse(record: &'r [u8]) -> Option<Self> {
        // The kernel escapes everything but printable ASCII.
        let (head, text) = std::str::from_utf8(record).ok()?.split_once(';')?;
        let mut fields = head.split(',');
        let priority: u32 = fields.next()?.parse().ok()?;
        let (sequence, at_us) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(Self {
            by_kernel: priority >> FACILITY_SHIFT == 0,
            sequence,
            at_us,
            is_continued: fields.next() == Some("c"),
            text: text.split('\n').next().unwrap_or(text),
        })
    }
}

/// Decodes the text. The kernel writes backslashes and unprintable bytes as `\x` and two digits.
fn unescaped(text: &str) -> String {
    if !text.contains('\\') {
        return text.to_owned();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend(before.bytes());
        let byte = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte {
            Some(byte) => bytes.push(byte),
            None => bytes.extend(after.bytes().take(2)),
        }
        rest = after.get(2..).unwrap_or_default();
    }
    bytes.extend(rest.bytes());
    kernel_text::name(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_split_into_head_and_text() {
        let record = |text: &'static str| Record::parse(text.as_bytes());
        let text = "virtio_blk virtio1: [vda] new size";
        let expected = Record { by_kernel: true, sequence: 340, at_us: 1_279_457, is_continued: false, text };
        assert_eq!(
            record("5,340,1279457,-;virtio_blk virtio1: [vda] new size\n SUBSYSTEM=virtio\n DEVICE=+virtio:virtio1\n"),
            Some(expected)
        );
        // CONFIG_PRINTK_CALLER adds a field. Facility 1 is a process that wrote to the log.
        assert_eq!(
            record("12,7,1,-,caller=T1;hello\n"),
            Some(Record { by_kernel: false, sequence: 7, at_us: 1, is_continued: false, text: "hello" })
        );
        assert_eq!(record("6,8,1,c;,oom_memcg=/a\n").map(|record| record.is_continued), Some(true));
        assert_eq!(record("no head"), None);
        assert_eq!(record("a,b,c;text"), None);
    }

    #[test]
    fn escaped_bytes_are_decoded() {
        for (text, expected) in [
            ("plain", "plain"),
            (r"/npm/child\x5cx2d1,task=a", r"/npm/child\x2d1,task=a"),
            (r"two\x0alines", "two\nlines"),
            (r"\xc3\xa9", "é"),
            (r"\xzz and \x4", r"zz and 4"),
        ] {
            assert_eq!(unescaped(text), expected, "{text}");
        }
    }

    #[test]
    fn this_machines_log_is_read_from_its_end() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            match Kmsg::open(Path::new(PATH)) {
                Ok(mut kmsg) => {
                    let mut reports = Vec::new();
                    assert!(!kmsg.read(&mut reports), "nothing follows the end");
                    assert_eq!(kmsg.lost(), 0);
                }
                Err(reason) => assert!(reason.contains(PATH), "{reason}"),
            }
            let reason = Kmsg::open(Path::new("/nonexistent/kmsg")).unwrap_err();
            assert!(
                reason.contains("/nonexistent/kmsg") && reason.ends_with("mount the host's /dev/kmsg)"),
                "{reason}"
            );
        });
    }
}
