//! Writes tar archives in the format of POSIX.1-1988 (ustar), for layers and for the image that contains them.

use std::io::{self, Write};

const BLOCK: usize = 512;
/// Ends an archive.
const TRAILER: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// Writes one archive. All entries belong to root and have time 0, so that equal input gives equal bytes.
#[derive(Debug)]
pub struct Archive<W> {
    out: W,
}

impl<W: Write> Archive<W> {
    pub fn new(out: W) -> Self {
        Self { out }
    }

    pub fn directory(&mut self, path: &str, permissions: u32) -> io::Result<()> {
        self.header(&format!("{}/", path.trim_matches('/')), permissions, 0, b'5', "")
    }

    pub fn symlink(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.header(path.trim_start_matches('/'), 0o777, 0, b'2', target)
    }

    pub fn file(&mut self, path: &str, permissions: u32, content: &[u8]) -> io::Result<()> {
        self.header(path.trim_start_matches('/'), permissions, content.len(), b'0', "")?;
        self.out.write_all(content)?;
        let missing = content.len().next_multiple_of(BLOCK) - content.len();
        self.out.write_all(&[0; BLOCK][..missing])
    }

    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&TRAILER)?;
        Ok(self.out)
    }

    fn header(&mut self, name: &str, permissions: u32, size: usize, kind: u8, target: &str) -> io::Result<()> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("{name}: {what}"));
        // A longer name needs a second field, which this writer does not support.
        if name.len().max(target.len()) > 100 {
            return Err(invalid("a name of more than 100 bytes"));
        }
        if size >= 1 << 33 {
            return Err(invalid("a file of 8 GiB or more"));
        }
        let mut header = [0; BLOCK];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, name.as_bytes());
        put(100, format!("{permissions:07o}\0").as_bytes());
        // Owner and group.
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{size:011o}\0").as_bytes());
        // Modification time.
        put(136, b"00000000000\0");
        // The check sum is computed with blanks in its own field.
        put(148, b"        ");
        put(156, &[kind]);
        put(157, target.as_bytes());
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.out.write_all(&header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_a_check_sum_and_is_padded_to_a_block() {
        let mut archive = Archive::new(Vec::new());
        archive.directory("/etc", 0o755).unwrap();
        archive.file("/etc/a", 0o644, b"hello").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len(), 5 * BLOCK, "two headers, one block of content, two that end it");
        assert_eq!((&bytes[..5], bytes[156]), (&b"etc/\0"[..], b'5'));
        let header = &bytes[BLOCK..2 * BLOCK];
        assert_eq!((&header[..6], &header[124..136], header[156]), (&b"etc/a\0"[..], &b"00000000005\0"[..], b'0'));
        let written = u32::from_str_radix(std::str::from_utf8(&header[148..154]).unwrap(), 8).unwrap();
        let sum = |range: &[u8]| range.iter().map(|byte| u32::from(*byte)).sum::<u32>();
        assert_eq!(written, sum(&header[..148]) + sum(&header[156..]) + 8 * u32::from(b' '));
        assert_eq!(&bytes[2 * BLOCK..2 * BLOCK + 6], b"hello\0");
    }

    #[test]
    fn a_name_that_does_not_fit_is_refused() {
        let long = "a".repeat(101);
        let error = Archive::new(Vec::new()).file(&long, 0o644, b"").unwrap_err().to_string();
        assert!(error.starts_with(&long) && error.contains("100 bytes"), "{error}");
    }

    #[test]
    fn tar_lists_the_archive() {
        let mut archive = Archive::new(Vec::new());
        archive.directory("usr", 0o755).unwrap();
        archive.file("usr/program", 0o755, &[7; 700]).unwrap();
        archive.symlink("usr/other", "program").unwrap();
        let bytes = archive.finish().unwrap();
        let file = std::env::temp_dir().join(format!("xtask-tar-{}", std::process::id()));
        std::fs::write(&file, bytes).unwrap();
        let listed = crate::cmd::output(std::process::Command::new("tar").arg("-tvf").arg(&file));
        std::fs::remove_file(&file).unwrap();
        let listed = listed.unwrap();
        assert!(listed.contains("-rwxr-xr-x") && listed.contains(" 700 1970-01-01"), "{listed}");
        assert!(listed.contains("usr/other -> program"), "{listed}");
    }
}
