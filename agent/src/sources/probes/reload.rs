//! Whether the driver is loaded, and whether it is still the same load.
//!
//! In: /sys/module/{nvidia,nvidia_uvm}: `initstate`, and the number of the directory, which the kernel never gives twice;
//! the note that tells one build of a module from another. Out: [`Loads`], to be compared with those of the look before
//! (two small reads: cheap enough for every second), and [`Builds`].
//! Not the address in /proc/modules: it is 0 for most, and may be the same again. Not the version: so may that.
//! What can go wrong: sysfs is not there; then no module is.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;

use super::functions::Module;
use crate::host::HostRoot;

/// Which loads of the driver's modules are live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    /// In the order of [`Module::ALL`].
    numbers: [Option<u64>; Module::ALL.len()],
}

impl Loads {
    /// Looks.
    pub fn look(host: &HostRoot) -> Self {
        Self { numbers: Module::ALL.map(|module| live(host, module)) }
    }

    #[cfg(test)]
    pub(super) fn of(numbers: [Option<u64>; Module::ALL.len()]) -> Self {
        Self { numbers }
    }

    /// Tells one load of a module from the next; `None` where it is not loaded.
    pub fn number(&self, module: Module) -> Option<u64> {
        Module::ALL.iter().position(|known| *known == module).and_then(|at| self.numbers[at])
    }

    /// The modules that are loaded.
    pub fn modules(&self) -> Vec<Module> {
        Module::ALL.into_iter().filter(|module| self.number(*module).is_some()).collect()
    }
}

/// Which build of a module a load is of: the linker's note, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build(Box<[u8]>);

/// The builds of the driver's modules that are loaded, where they say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Builds {
    /// In the order of [`Module::ALL`].
    notes: [Option<Build>; Module::ALL.len()],
}

impl Builds {
    /// Looks.
    pub fn look(host: &HostRoot) -> Self {
        Self { notes: Module::ALL.map(|module| build(host, module)) }
    }

    /// The build of a module; `None` where it is not loaded, or does not say.
    pub fn of(&self, module: Module) -> Option<&Build> {
        Module::ALL.iter().position(|known| *known == module).and_then(|at| self.notes[at].as_ref())
    }
}

fn build(host: &HostRoot, module: Module) -> Option<Build> {
    /// A note with a hash of 160 bits has 36 bytes.
    const LONGEST: u64 = 256;
    let path = host.sys("module").join(module.name()).join("notes/.note.gnu.build-id");
    let mut note = Vec::new();
    fs::File::open(path).ok()?.take(LONGEST).read_to_end(&mut note).ok()?;
    (!note.is_empty()).then(|| Build(note.into()))
}

/// A module that is coming or going has not all of its functions.
fn live(host: &HostRoot, module: Module) -> Option<u64> {
    let path = host.sys("module").join(module.name());
    let state = fs::read_to_string(path.join("initstate")).ok()?;
    let number = fs::metadata(&path).ok()?.ino();
    (state.trim() == "live").then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    #[test]
    fn a_load_is_told_from_the_next() {
        let dir = TestDir::new();
        let host = HostRoot { sys: dir.path().to_owned(), ..HostRoot::default() };
        let nothing = Loads::look(&host);
        assert_eq!((nothing, nothing.modules()), (Loads::default(), vec![]));
        let module = host.sys("module/nvidia");
        let load = |state: &str| {
            fs::create_dir_all(&module).unwrap();
            fs::write(module.join("initstate"), state).unwrap();
            Loads::look(&host)
        };
        assert_eq!(load("coming\n"), nothing);
        let first = load("live\n");
        assert_eq!(first.modules(), [Module::Nvidia]);
        assert_eq!(Loads::look(&host), first);
        assert_eq!(load("going\n"), nothing);
        // kept, so that its number is not given again: sysfs would not either
        fs::rename(&module, dir.path().join("former")).unwrap();
        assert_eq!(Loads::look(&host), nothing);
        let second = load("live\n");
        assert_ne!(second, first);
        fs::create_dir_all(host.sys("module/nvidia_uvm")).unwrap();
        fs::write(host.sys("module/nvidia_uvm/initstate"), "live\n").unwrap();
        let both = Loads::look(&host);
        assert_eq!(both.modules(), Module::ALL);
        assert_eq!(both.number(Module::Nvidia), second.number(Module::Nvidia));
    }

    #[test]
    fn a_build_is_told_from_another() {
        let dir = TestDir::new();
        let host = HostRoot { sys: dir.path().to_owned(), ..HostRoot::default() };
        let notes = host.sys("module/nvidia/notes");
        fs::create_dir_all(&notes).unwrap();
        let build = |note: &[u8]| {
            fs::write(notes.join(".note.gnu.build-id"), note).unwrap();
            Builds::look(&host).of(Module::Nvidia).cloned()
        };
        let first = build(b"\x04\0\0\0\x02\0\0\0\x03\0\0\0GNU\0\x01\xff");
        assert_eq!(first, build(b"\x04\0\0\0\x02\0\0\0\x03\0\0\0GNU\0\x01\xff"));
        assert!(first.is_some() && first != build(b"\x04\0\0\0\x02\0\0\0\x03\0\0\0GNU\0\x01\xfe"));
        assert_eq!(build(b""), None, "nothing is said");
        assert_eq!(Builds::look(&host).of(Module::Uvm), None);
    }
}
