//! The ELF file inside a packed x86 kernel; it keeps the description of the kernel's types.
//!
//! In: a bzImage. Out: the ELF file's bytes. Layout: the kernel's `Documentation/arch/x86/boot.rst`.
//! What can go wrong: it is no such file, or is packed in a way that nobody here can unpack; both are said.

use std::io::Write as _;
use std::process::Stdio;
use std::thread;

use anyhow::{Context as _, Result, ensure};

use super::tools::Tools;

/// Where the header says: sectors of set-up code less one, its magic, the payload's offset and length.
const SETUP_SECTORS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
const SECTOR: usize = 512;
/// What a set-up of 0 sectors means, for the sake of very old boot loaders.
const SETUP_SECTORS_IF_0: usize = 4;

/// The first bytes of a packed kernel, and what unpacks it.
const PACKERS: [(&[u8], &str, &[&str]); 4] = [
    (b"\x02\x21\x4c\x18", "lz4", &["-dc"]), // its legacy format
    (b"\x28\xb5\x2f\xfd", "zstd", &["-dc"]),
    (b"\xfd7zXZ\0", "xz", &["-dc", "--single-stream"]),
    (b"\x1f\x8b", "gzip", &["-dc"]),
];

/// The kernel's ELF file.
pub(crate) fn vmlinux(image: &[u8], tools: &Tools) -> Result<Vec<u8>> {
    let payload = payload(image).context("this is no packed x86 kernel")?;
    let (program, arguments) = packer(payload).context("the kernel is packed in an unknown way")?;
    let mut command = tools.command(program);
    // What stands behind the packed kernel (its length) is no part of it, which the programs complain about.
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    let mut input = child.stdin.take().context("no input")?;
    let unpacked = thread::scope(|scope| {
        scope.spawn(move || {
            let _ = input.write_all(payload); // it may stop reading at the end of the packed kernel
        });
        child.wait_with_output()
    })?;
    ensure!(unpacked.stdout.starts_with(b"\x7fELF"), "{program} did not give an ELF file");
    Ok(unpacked.stdout)
}

fn payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| -> Option<usize> {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    if image.get(MAGIC..MAGIC + 4)? != b"HdrS" {
        return None;
    }
    let sectors = match usize::from(*image.get(SETUP_SECTORS)?) {
        0 => SETUP_SECTORS_IF_0,
        sectors => sectors,
    };
    let start = ((sectors + 1) * SECTOR).checked_add(number(PAYLOAD_OFFSET)?)?;
    image.get(start..start.checked_add(number(PAYLOAD_LENGTH)?)?)
}

fn packer(payload: &[u8]) -> Option<(&'static str, &'static [&'static str])> {
    let (_, program, arguments) = PACKERS.iter().find(|(magic, ..)| payload.starts_with(magic))?;
    Some((program, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(sectors: u8, offset: u32, payload: &[u8]) -> Vec<u8> {
        let real = if sectors == 0 { 4 } else { usize::from(sectors) };
        let mut image = vec![0; (real + 1) * SECTOR + offset as usize];
        image[SETUP_SECTORS] = sectors;
        image[MAGIC..MAGIC + 4].copy_from_slice(b"HdrS");
        image[PAYLOAD_OFFSET..PAYLOAD_OFFSET + 4].copy_from_slice(&offset.to_le_bytes());
        image[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        image.extend_from_slice(payload);
        image.extend_from_slice(b"behind");
        image
    }

    #[test]
    fn the_payload_is_where_the_header_says() {
        for (sectors, offset) in [(27, 0x2cc), (0, 0), (1, 5)] {
            assert_eq!(payload(&image(sectors, offset, b"packed")), Some(&b"packed"[..]), "{sectors}");
        }
    }

    #[test]
    fn what_is_no_kernel_is_refused() {
        let good = image(1, 0, b"packed");
        assert_eq!(payload(&good[..SECTOR]), None, "cut in the header");
        assert_eq!(payload(&good[..good.len() - 7]), None, "cut in the payload");
        let mut long = good.clone();
        long[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(payload(&long), None);
        let mut other = good;
        other[MAGIC] = b'X';
        assert_eq!(payload(&other), None);
    }

    #[test]
    fn a_packer_is_known_by_its_first_bytes() {
        let program = |bytes: &[u8]| packer(bytes).map(|(program, _)| program);
        assert_eq!(program(b"\x02\x21\x4c\x18rest"), Some("lz4"));
        assert_eq!(program(b"\x1f\x8b\x08"), Some("gzip"));
        assert_eq!(program(b"BZh9"), None);
        assert_eq!(program(b""), None);
    }
}
