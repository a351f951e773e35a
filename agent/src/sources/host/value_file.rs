//! One file of sysfs, kept open and read again and again: no path is looked up, and nothing allocated, per value.
//! An open file of sysfs keeps neither its device nor a module. Trap: newer kernels wake a device out of runtime suspend
//! for a read of its current link.
//!
//! In: a path, once; then a buffer per reading. Out: the value, or why there is none.
//! What can go wrong: no such file, no right, a device that is gone (sysfs answers ENODEV on a file that is still open).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::io::Errno;

use crate::model::{Absence, HostField, SampleValue};

use super::text;

/// Room for a whole file: sysfs prints a page at most, and these files some hundred bytes.
pub const BUFFER: usize = 4096;

/// A field of a device, and where it stands.
#[derive(Debug)]
pub struct ValueFile {
    /// What it holds.
    pub field: HostField,
    /// The file, or why it cannot be opened.
    file: Result<File, Absence>,
    /// Why there was no value the last time; it is said once, and once more when somebody asks for it.
    said: Option<Absence>,
}

/// A device that does not exist any more.
#[derive(Debug, PartialEq, Eq)]
pub struct Gone;

impl ValueFile {
    /// Opens the file.
    pub fn open(field: HostField, path: &Path) -> Self {
        let file = File::open(path).map_err(|error| absence(&error).unwrap_or(Absence::NotFound));
        Self { field, file, said: None }
    }

    /// A reason that was given before is given again at the next reading.
    pub fn say_again(&mut self) {
        self.said = None;
    }

    /// The value now. `Ok(None)`: there is none, for the reason that was given before.
    ///
    /// # Errors
    /// The device is gone.
    pub fn read(&mut self, buffer: &mut [u8; BUFFER]) -> Result<Option<SampleValue>, Gone> {
        let value = match &self.file {
            Err(absence) => SampleValue::Absent(*absence),
            Ok(file) => match read(file, buffer) {
                // a file that fills the buffer goes on behind it
                Ok(BUFFER) => SampleValue::Absent(Absence::Invalid),
                Ok(length) => text::parse(self.field, buffer.get(..length).unwrap_or_default()),
                Err(error) => SampleValue::Absent(absence(&error).ok_or(Gone)?),
            },
        };
        let reason = if let SampleValue::Absent(reason) = value { Some(reason) } else { None };
        let before = std::mem::replace(&mut self.said, reason);
        Ok((reason.is_none() || reason != before).then_some(value))
    }
}

/// From the beginning: sysfs then asks the device anew.
fn read(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, 0) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Why an error leaves no value; `None` where the device is gone.
fn absence(error: &io::Error) -> Option<Absence> {
    /// Only inside the kernel, but some drivers let it out.
    const NOT_SUPPORTED: i32 = 524;
    match Errno::from_io_error(error) {
        Some(Errno::NODEV | Errno::NXIO) => None,
        // a kernel without AER, or a device without the capability, has no such file
        Some(Errno::NOENT | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Some(Absence::NotSupported),
        Some(Errno::ACCESS | Errno::PERM) => Some(Absence::NotPermitted),
        Some(errno) if errno.raw_os_error() == NOT_SUPPORTED => Some(Absence::NotSupported),
        _ => Some(Absence::Blank),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    #[test]
    fn a_reason_is_said_once_and_again_when_it_changes() {
        let dir = TestDir::new();
        let path = dir.path().join("current_link_width");
        let put = |text: &str| std::fs::write(&path, text).unwrap();
        put("16\n");
        let (mut file, mut buffer) =
            (ValueFile::open(HostField::PcieLinkWidth, &path), Box::new([0; BUFFER]));
        let absent = |absence| Some(SampleValue::Absent(absence));
        let long = "1".repeat(BUFFER);
        for (text, want) in [
            ("16\n", Some(SampleValue::Int(16))),
            ("16\n", Some(SampleValue::Int(16))),
            ("63\n", absent(Absence::Blank)),
            ("63\n", None),
            ("many\n", absent(Absence::Invalid)),
            (&long, None),
            ("8\n", Some(SampleValue::Int(8))),
            ("63\n", absent(Absence::Blank)),
        ] {
            put(text);
            assert_eq!(file.read(&mut buffer), Ok(want), "{:.20}", text);
        }
        let mut missing = ValueFile::open(HostField::AerFatal, &dir.path().join("aer_dev_fatal"));
        assert_eq!(missing.read(&mut buffer), Ok(absent(Absence::NotSupported)));
        assert_eq!(missing.read(&mut buffer), Ok(None));
        missing.say_again();
        assert_eq!(missing.read(&mut buffer), Ok(absent(Absence::NotSupported)));
    }

    #[test]
    fn the_systems_answers_are_told_apart() {
        for (errno, want) in [
            (Errno::NODEV, None),
            (Errno::NXIO, None),
            (Errno::NOENT, Some(Absence::NotSupported)),
            (Errno::OPNOTSUPP, Some(Absence::NotSupported)),
            (Errno::from_raw_os_error(524), Some(Absence::NotSupported)),
            (Errno::ACCESS, Some(Absence::NotPermitted)),
            (Errno::PERM, Some(Absence::NotPermitted)),
            (Errno::IO, Some(Absence::Blank)),
            (Errno::TIMEDOUT, Some(Absence::Blank)),
        ] {
            assert_eq!(absence(&errno.into()), want, "{errno}");
        }
    }
}
