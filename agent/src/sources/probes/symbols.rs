//! Which of the driver's functions the loaded driver has, and under which names.
//!
//! In: /proc/kallsyms, read line by line, and which modules are loaded. Out: [`Symbols`].
//! Only names count: addresses are 0 for whoever may not see them (`kernel.kptr_restrict`).
//! What can go wrong: the file cannot be read; then nothing is known, with the system's words.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::functions::{Function, Module};
use super::tactics::PROBES;

/// A line is a name of at most 512 bytes with some 80 around it; what is longer is passed over.
const LONGEST_LINE: u64 = 1024;
/// The compiler makes a few copies of a function at most.
const MOST_COPIES: usize = 8;

/// What is known of the driver's functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// Loaded modules.
    loaded: Vec<Module>,
    /// Names as the kernel has them, by those without the compiler's endings.
    found: BTreeMap<(Module, &'static str), Vec<String>>,
    /// Why nothing is known.
    unreadable: Option<String>,
}

/// Where a function is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Here (or here until its module went), under these names: one, or the copies that the compiler made of it.
    At(Vec<String>),
    /// The module is not loaded; this will be its name, if its branch is a new one.
    NotYet(&'static str),
    /// The module is loaded and has no such function.
    Nowhere,
}

impl Symbols {
    /// Looks the functions of all probes up. `loaded`: the modules that are. Takes some tenths of a second, for the
    /// kernel makes the file up.
    pub fn look(kallsyms: &Path, loaded: Vec<Module>) -> Self {
        let read = File::open(kallsyms)
            .and_then(|file| Self::read(BufReader::with_capacity(1 << 16, file), &loaded));
        read.unwrap_or_else(|error| {
            let unreadable = Some(format!("{}: {error}", kallsyms.display()));
            Self { loaded: Vec::new(), found: BTreeMap::new(), unreadable }
        })
    }

    fn read(mut file: impl BufRead, loaded: &[Module]) -> io::Result<Self> {
        let mut symbols = Self { loaded: loaded.to_vec(), ..Self::default() };
        let mut line = Vec::new();
        loop {
            line.clear();
            if (&mut file).take(LONGEST_LINE).read_until(b'\n', &mut line)? == 0 {
                // one that comes or goes is not counted as loaded, and has not all of its functions
                symbols.found.retain(|(module, _), _| loaded.contains(module));
                return Ok(symbols);
            }
            if line.last() != Some(&b'\n') && line.len() as u64 == LONGEST_LINE {
                skip_line(&mut file)?;
            } else if let Some((module, base, name)) = parse(&line) {
                let names = symbols.found.entry((module, base)).or_default();
                if names.len() < MOST_COPIES && !names.iter().any(|known| known == name) {
                    names.push(name.to_owned());
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn of(kallsyms: &str, loaded: &[Module]) -> Self {
        Self::read(kallsyms.as_bytes(), loaded).unwrap()
    }

    /// Why nothing is known, where that is so.
    pub fn unreadable(&self) -> Option<&str> {
        self.unreadable.as_deref()
    }

    /// Whether the module is loaded.
    pub fn is_loaded(&self, module: Module) -> bool {
        self.loaded.contains(&module)
    }

    /// A module that is gone for now is waited for under the names that it had.
    pub fn remember(&mut self, former: &Self) {
        let gone = |module: &Module| !self.loaded.contains(module);
        let kept = former.found.iter().filter(|((module, _), _)| gone(module));
        let kept: Vec<_> = kept.map(|(key, names)| (*key, names.clone())).collect();
        self.found.extend(kept);
    }

    /// Where the function is.
    pub fn place(&self, function: &Function) -> Place {
        // not looked up: whether it is there, the kernel says when an event is put on it
        if function.module == Module::Kernel {
            return Place::At(function.names.last().map(|name| (*name).to_owned()).into_iter().collect());
        }
        let found = function
            .names
            .iter()
            .find_map(|base| self.found.get(&(function.module, *base)).map(|n| (base, n)));
        match found {
            None if !self.is_loaded(function.module) => {
                function.names.last().map_or(Place::Nowhere, |name| Place::NotYet(name))
            }
            None => Place::Nowhere,
            // what the compiler split off runs within the function itself
            Some((base, names)) if names.iter().any(|name| name == base) => {
                Place::At(vec![(*base).to_owned()])
            }
            Some((_, names)) => Place::At(names.clone()),
        }
    }
}

/// The rest of a line that is too long.
fn skip_line(file: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = file.fill_buf()?;
        let length = buffer.len();
        let end = buffer.iter().position(|byte| *byte == b'\n');
        file.consume(end.map_or(length, |at| at + 1));
        if end.is_some() || length == 0 {
            return Ok(());
        }
    }
}

/// A function of a probe: its module, its name in the table, its name in the kernel. Lines are
/// `address type name [module]`, where the kernel's own symbols have no module.
fn parse(line: &[u8]) -> Option<(Module, &'static str, &str)> {
    let line = line.trim_ascii_end();
    // nearly all lines end here
    let rest = line.strip_suffix(b"]")?;
    let line = str::from_utf8(rest).ok()?;
    let (symbol, module) = line.rsplit_once('[')?;
    let module = Module::ALL.into_iter().find(|known| known.name() == module)?;
    let mut words = symbol.split_ascii_whitespace();
    let (_address, kind, name) = (words.next()?, words.next()?, words.next()?);
    let is_text = matches!(kind, "t" | "T" | "w" | "W");
    let (base, ending) = name.split_once('.').unwrap_or((name, ""));
    let known = is_text && is_of_the_function(ending);
    let base = known.then(|| known_name(module, base)).flatten()?;
    Some((module, base, name))
}

fn known_name(module: Module, name: &str) -> Option<&'static str> {
    let functions = PROBES.into_iter().flat_map(|probe| probe.functions());
    let names = functions.filter(|function| function.module == module).flat_map(|function| function.names);
    names.copied().find(|known| *known == name)
}

/// Endings such as `isra.0`, `constprop.1.part.0`; not `cold`, which is code that is jumped to.
fn is_of_the_function(ending: &str) -> bool {
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    ending.is_empty()
        || ending.split('.').all(|word| matches!(word, "part" | "isra" | "constprop") || is_number(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::probes::tactics::Probe;

    const BOTH: [Module; 2] = Module::ALL;

    fn read(text: &str, loaded: &[Module]) -> Symbols {
        Symbols::of(text, loaded)
    }

    /// What became of each function of a probe.
    fn places(symbols: &Symbols, probe: Probe) -> Vec<Place> {
        probe.functions().iter().map(|function| symbols.place(function)).collect()
    }

    fn at(names: &[&str]) -> Place {
        Place::At(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn a_module_that_is_gone_is_waited_for_under_its_names() {
        let text = "0 t nvidia_unlocked_ioctl\t[nvidia]\n0 t uvm_unlocked_ioctl_entry.isra.0\t[nvidia_uvm]\n";
        let both = read(text, &BOTH);
        let mut one = read("0 t nvidia_unlocked_ioctl\t[nvidia]\n", &[Module::Nvidia]);
        let not_yet = Place::NotYet("uvm_unlocked_ioctl_entry");
        assert_eq!(places(&one, Probe::Ioctl), [at(&["nvidia_unlocked_ioctl"]), not_yet]);
        one.remember(&both);
        let as_before = at(&["uvm_unlocked_ioctl_entry.isra.0"]);
        assert_eq!(places(&one, Probe::Ioctl), [at(&["nvidia_unlocked_ioctl"]), as_before]);
        assert!(!one.is_loaded(Module::Uvm));
        // of one that is there, only what it has now counts
        let mut renamed = read("0 t nvidia_frontend_unlocked_ioctl\t[nvidia]\n", &BOTH);
        renamed.remember(&both);
        assert_eq!(places(&renamed, Probe::Ioctl), [at(&["nvidia_frontend_unlocked_ioctl"]), Place::Nowhere]);
    }

    #[test]
    fn a_branch_has_its_own_names() {
        let of_580 = "ffffffffc0a01000 t nvidia_unlocked_ioctl\t[nvidia]\n\
             ffffffffc0b01000 t uvm_unlocked_ioctl_entry\t[nvidia_uvm]\n\
             ffffffffc0b01800 t uvm_unlocked_ioctl_entry.part.0\t[nvidia_uvm]\n\
             ffffffffc0a02000 t nvidia_open\t[nvidia]\n\
             ffffffffc0b02000 T uvm_parent_gpu_service_replayable_faults\t[nvidia_uvm]\n";
        let of_535 = "0000000000000000 T nvidia_frontend_unlocked_ioctl\t[nvidia]\n\
             0000000000000000 T nvidia_frontend_open\t[nvidia]\n\
             0000000000000000 t nvidia_open\t[nvidia]\n\
             0000000000000000 T uvm_gpu_service_replayable_faults\t[nvidia_uvm]\n";
        for (text, probe, want) in [
            (of_580, Probe::Ioctl, vec![at(&["nvidia_unlocked_ioctl"]), at(&["uvm_unlocked_ioctl_entry"])]),
            (of_580, Probe::Open, vec![at(&["nvidia_open"]), Place::Nowhere]),
            (
                of_580,
                Probe::UvmService,
                vec![at(&["uvm_parent_gpu_service_replayable_faults"]), Place::Nowhere],
            ),
            (of_535, Probe::Ioctl, vec![at(&["nvidia_frontend_unlocked_ioctl"]), Place::Nowhere]),
            // the one within it must not be counted as well
            (of_535, Probe::Open, vec![at(&["nvidia_frontend_open"]), Place::Nowhere]),
            (of_535, Probe::UvmService, vec![at(&["uvm_gpu_service_replayable_faults"]), Place::Nowhere]),
            (of_535, Probe::Rm, vec![Place::Nowhere]),
        ] {
            let found = places(&read(text, &BOTH), probe);
            assert_eq!(found[..], want[..found.len().min(want.len())], "{probe:?}");
        }
    }

    #[test]
    fn only_functions_of_the_module_count() {
        for (line, want) in [
            ("ffffffffc0a01000 t rm_ioctl\t[nvidia]", at(&["rm_ioctl"])),
            ("ffffffffc0a01000 T rm_ioctl [nvidia]", at(&["rm_ioctl"])),
            ("ffffffffc0a01000 t rm_ioctl.isra.0\t[nvidia]", at(&["rm_ioctl.isra.0"])),
            (
                "ffffffffc0a01000 t rm_ioctl.constprop.0.isra.1\t[nvidia]",
                at(&["rm_ioctl.constprop.0.isra.1"]),
            ),
            ("a t rm_ioctl.constprop.0\t[nvidia]\na t rm_ioctl.constprop.1\t[nvidia]", {
                at(&["rm_ioctl.constprop.0", "rm_ioctl.constprop.1"])
            }),
            ("a t rm_ioctl\t[nvidia]\na t rm_ioctl\t[nvidia]", at(&["rm_ioctl"])),
            ("ffffffffc0a01000 t rm_ioctl.cold\t[nvidia]", Place::Nowhere),
            ("ffffffffc0a01000 t rm_ioctl.part.0.cold\t[nvidia]", Place::Nowhere),
            ("ffffffffc0a01000 t __pfx_rm_ioctl\t[nvidia]", Place::Nowhere),
            ("ffffffffc0a01000 t rm_ioctl_x\t[nvidia]", Place::Nowhere),
            ("ffffffffc0a01000 d rm_ioctl\t[nvidia]", Place::Nowhere),
            ("ffffffffc0a01000 t rm_ioctl\t[nvidia_modeset]", Place::Nowhere),
            ("ffffffffc0a01000 t rm_ioctl\t[nvidia_uvm]", Place::Nowhere),
            ("ffffffffc0a01000 t rm_ioctl", Place::Nowhere),
            ("rm_ioctl\t[nvidia]", Place::Nowhere),
            ("]\n[\n[nvidia]\n\u{0} [nvidia]\n", Place::Nowhere),
        ] {
            assert_eq!(places(&read(line, &BOTH), Probe::Rm), [want], "{line}");
        }
    }

    #[test]
    fn copies_and_lines_are_bounded() {
        let copies: String = (0..100).map(|n| format!("a t rm_ioctl.constprop.{n}\t[nvidia]\n")).collect();
        let [Place::At(names)] = &places(&read(&copies, &BOTH), Probe::Rm)[..] else { panic!("not found") };
        assert_eq!(names.len(), MOST_COPIES);
        let long = format!("a t {}\t[nvidia]\na t rm_ioctl\t[nvidia]", "x".repeat(3 * LONGEST_LINE as usize));
        assert_eq!(places(&read(&long, &BOTH), Probe::Rm), [at(&["rm_ioctl"])]);
        let endless = "x".repeat(5000);
        assert_eq!(places(&read(&endless, &BOTH), Probe::Rm), [Place::Nowhere]);
    }

    #[test]
    fn a_driver_that_is_not_there_yet_is_expected_to_be_a_new_one() {
        let symbols = read("a t nvidia_frontend_unlocked_ioctl\t[nvidia]\n", &[]);
        let want = [Place::NotYet("nvidia_unlocked_ioctl"), Place::NotYet("uvm_unlocked_ioctl_entry")];
        assert_eq!(places(&symbols, Probe::Ioctl), want);
        let symbols = Symbols::look(Path::new("/nowhere/kallsyms"), BOTH.to_vec());
        assert!(symbols.unreadable().is_some_and(|why| why.contains("/nowhere/kallsyms")), "{symbols:?}");
    }

    #[test]
    fn this_machines_own_list_can_be_read() {
        let symbols = Symbols::look(Path::new("/proc/kallsyms"), Vec::new());
        assert_eq!(symbols.unreadable(), None);
    }
}
