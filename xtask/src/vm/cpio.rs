//! Writes initramfs archives in the "newc" format of the kernel's Documentation/driver-api/early-userspace/buffer-format.rst.

use std::io::{self, Write};

const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
const S_IFCHR: u32 = 0o020_000;
const TRAILER: &str = "TRAILER!!!";

/// Writes one archive. All entries belong to root and have time 0, so that equal input gives equal bytes.
#[derive(Debug)]
pub struct Archive<W> {
    out: W,
    inode: u32,
}

impl<W: Write> Archive<W> {
    pub fn new(out: W) -> Self {
        Self { out, inode: 0 }
    }

    pub fn directory(&mut self, path: &str) -> io::Result<()> {
        self.entry(path, S_IFDIR | 0o755, (0, 0), &[])
    }

    pub fn file(&mut self, path: &str, permissions: u32, content: &[u8]) -> io::Result<()> {
        self.entry(path, S_IFREG | permissions, (0, 0), content)
    }

    /// Adds a character device. init needs /dev/console before it can mount anything.
    pub fn character_device(&mut self, path: &str, major: u32, minor: u32) -> io::Result<()> {
        self.entry(path, S_IFCHR | 0o600, (major, minor), &[])
    }

    pub fn finish(mut self) -> io::Result<W> {
        self.inode = 0;
        self.header(TRAILER, 0, (0, 0), 0, 1)?;
        Ok(self.out)
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) -> io::Result<()> {
        let size = u32::try_from(content.len())
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{path}: a file of 4 GiB or more")))?;
        self.inode += 1;
        let links = if mode & S_IFDIR == S_IFDIR { 2 } else { 1 };
        self.header(path.trim_start_matches('/'), mode, device, size, links)?;
        self.out.write_all(content)?;
        self.pad(content.len())
    }

    fn header(&mut self, name: &str, mode: u32, device: (u32, u32), size: u32, links: u32) -> io::Result<()> {
        let name_size = u32::try_from(name.len() + 1)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, format!("{name}: name too long")))?;
        write!(self.out, "070701")?;
        // The fields: inode, mode, uid, gid, links, time, size, device of the file, device that it represents, size of the name,
        // check sum.
        let fields = [self.inode, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_size, 0];
        for field in fields {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(&[0])?;
        self.pad(6 + fields.len() * 8 + name.len() + 1)
    }

    /// Pads to four bytes, as the format requires. The length includes the header.
    fn pad(&mut self, written: usize) -> io::Result<()> {
        let missing = written.next_multiple_of(4) - written;
        self.out.write_all(&[0; 4][..missing])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(archive: &[u8], index: usize) -> u32 {
        let start = 6 + index * 8;
        u32::from_str_radix(std::str::from_utf8(&archive[start..start + 8]).unwrap(), 16).unwrap()
    }

    #[test]
    fn header_name_and_content_are_padded_to_four_bytes() {
        let mut archive = Archive::new(Vec::new());
        archive.file("/bin/a", 0o755, b"hello").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(field(&bytes, 1), 0o100_755);
        assert_eq!(field(&bytes, 6), 5);
        assert_eq!(field(&bytes, 11), 6, "name without leading slash, with its zero byte");
        assert_eq!(&bytes[110..116], b"bin/a\0");
        assert_eq!(&bytes[116..124], b"hello\0\0\0");
        assert_eq!(&bytes[124..130], b"070701", "the next header starts aligned");
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&bytes[124 + 110..124 + 121], b"TRAILER!!!\0");
    }

    #[test]
    fn a_device_has_its_numbers() {
        let mut archive = Archive::new(Vec::new());
        archive.character_device("dev/console", 5, 1).unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!((field(&bytes, 1), field(&bytes, 9), field(&bytes, 10)), (0o020_600, 5, 1));
    }

    #[test]
    fn equal_input_gives_equal_bytes() {
        let make = || {
            let mut archive = Archive::new(Vec::new());
            archive.directory("bin").unwrap();
            archive.file("init", 0o755, b"x").unwrap();
            archive.finish().unwrap()
        };
        assert_eq!(make(), make());
    }
}
