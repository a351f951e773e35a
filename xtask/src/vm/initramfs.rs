//! A file system for the guest, as the kernel takes it: a cpio archive in the format `newc`.
//!
//! In: folders and files with their paths in the guest. Out: bytes, not packed: QEMU reads faster than the guest unpacks.
//! Format: the kernel's `Documentation/driver-api/early-userspace/buffer-format.rst`. What can go wrong: a file over 4 GiB.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
/// The last entry's name.
const TRAILER: &str = "TRAILER!!!";

/// What is packed, by path: without a leading `/`; folders have no bytes.
#[derive(Debug, Default)]
pub(crate) struct Initramfs {
    entries: BTreeMap<String, Option<Vec<u8>>>,
}

impl Initramfs {
    /// Adds a file with these bytes, and the folders above it.
    pub(crate) fn add(&mut self, path: &str, bytes: Vec<u8>) {
        let path = path.trim_start_matches('/');
        for (at, _) in path.match_indices('/') {
            self.entries.entry(path.get(..at).unwrap_or_default().to_owned()).or_insert(None);
        }
        self.entries.insert(path.to_owned(), Some(bytes));
    }

    /// Adds a copy of a file of this machine.
    pub(crate) fn add_file(&mut self, path: &str, from: &Path) -> Result<()> {
        self.add(path, fs::read(from).with_context(|| format!("reading {}", from.display()))?);
        Ok(())
    }

    /// The archive.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>> {
        let mut archive = Vec::new();
        // a map's order: a folder is before what is in it
        for (number, (path, bytes)) in (1..).zip(&self.entries) {
            let mode = if bytes.is_some() { PROGRAM } else { FOLDER };
            entry(&mut archive, number, mode, path, bytes.as_deref().unwrap_or_default())?;
        }
        entry(&mut archive, 0, 0, TRAILER, &[])?;
        Ok(archive)
    }
}

/// One header of 13 numbers in hexadecimal, the name, the bytes; each part padded to 4 bytes.
fn entry(archive: &mut Vec<u8>, number: u32, mode: u32, path: &str, bytes: &[u8]) -> Result<()> {
    let size = u32::try_from(bytes.len()).with_context(|| format!("{path} is over 4 GiB"))?;
    let name_size = u32::try_from(path.len() + 1).with_context(|| format!("{path}: too long"))?;
    let links = if mode == FOLDER { 2 } else { 1 };
    let (user, group, time, none) = (0, 0, 0, 0);
    archive.extend_from_slice(b"070701");
    for field in [number, mode, user, group, links, time, size, none, none, none, none, name_size, none] {
        archive.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    archive.extend_from_slice(path.as_bytes());
    archive.push(0);
    pad(archive);
    archive.extend_from_slice(bytes);
    pad(archive);
    Ok(())
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an archive back by the format's description: mode, path and bytes of each entry.
    fn read(mut archive: &[u8]) -> Vec<(u32, String, Vec<u8>)> {
        let mut entries = Vec::new();
        let all = archive.len();
        while let Some(rest) = archive.strip_prefix(b"070701") {
            let field = |n: usize| {
                let digits = std::str::from_utf8(&rest[n * 8..n * 8 + 8]).expect("digits");
                u32::from_str_radix(digits, 16).expect("a number")
            };
            let (mode, size, name) = (field(1), field(6) as usize, field(11) as usize);
            assert_eq!((all - archive.len()) % 4, 0, "an entry begins at a multiple of 4");
            let data = (110 + name).next_multiple_of(4);
            let path = String::from_utf8(archive[110..110 + name - 1].to_vec()).expect("a path");
            assert_eq!(archive[110 + name - 1], 0, "the name ends with 0");
            entries.push((mode, path, archive[data..data + size].to_vec()));
            archive = &archive[(data + size).next_multiple_of(4)..];
        }
        assert!(archive.is_empty(), "nothing behind the last entry");
        entries
    }

    #[test]
    fn what_was_packed_is_read_back_with_its_folders_before_it() {
        let mut packed = Initramfs::default();
        packed.add("/lib/a/b.so", b"library".to_vec());
        packed.add("/init", b"12345".to_vec());
        packed.add("/lib/c", Vec::new());
        let want = [
            (PROGRAM, "init", "12345"),
            (FOLDER, "lib", ""),
            (FOLDER, "lib/a", ""),
            (PROGRAM, "lib/a/b.so", "library"),
            (PROGRAM, "lib/c", ""),
            (0, TRAILER, ""),
        ];
        let want = want.map(|(mode, path, bytes)| (mode, path.to_owned(), bytes.as_bytes().to_vec()));
        assert_eq!(read(&packed.bytes().expect("packed")), want);
    }

    #[test]
    fn a_header_is_as_the_format_has_it() {
        let mut archive = Vec::new();
        entry(&mut archive, 7, PROGRAM, "a", b"xyz").expect("packed");
        let text = "07070100000007000081ed00000000000000000000000100000000000000030000000000000000000000000000000000000002\
                    00000000a\0";
        assert_eq!(&archive[..text.len()], text.as_bytes());
        assert_eq!(&archive[text.len()..], b"xyz\0");
    }
}
