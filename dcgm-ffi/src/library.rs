//! libdcgm, opened at run time.
//!
//! In: a path, or nothing: then `libdcgm.so.4`, else `libdcgm.so.3`. Out: [`Library`], initialized, from
//! which an [`Engine`] is had by connecting or by starting one inside this process. What can go wrong: no
//! library, a file that is none, one without the functions, or one that cannot start.
//!
//! Once initialized the library is never unloaded: it starts threads (11 and more with an engine inside) and
//! keeps thread-local state, and there is no way to wait for the last of them; code that returns into an
//! unmapped page ends the process.

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use libloading::os::unix::{Library as Loaded, RTLD_GLOBAL, RTLD_LAZY};

use crate::abi::{self, connection::VersionInfo};
use crate::entity::EntityGroup;
use crate::error::Error;
use crate::field_kind::FieldKind;
use crate::return_code::ReturnCode;
use crate::symbols::Symbols;
use crate::version::Version;

/// Names in the order of preference. An unversioned name exists only with the development package.
const NAMES: [&str; 2] = ["libdcgm.so.4", "libdcgm.so.3"];

/// There is a [`Library`] that [`Library::open`] made.
static OPEN: AtomicBool = AtomicBool::new(false);

/// The right to have a library open; given back when it is dropped.
struct Claim;

impl Claim {
    fn take() -> Option<Self> {
        (!OPEN.swap(true, Ordering::AcqRel)).then_some(Self)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        OPEN.store(false, Ordering::Release);
    }
}

/// An initialized libdcgm. One per process: its state is the process's.
///
/// It may be used from several threads: it holds function pointers and flags only, and the library says that
/// every function may be called from any thread.
///
/// ```no_run
/// use std::time::Duration;
/// use dcgm_ffi::{Address, Library};
///
/// let library = Library::open(None)?;
/// let engine = match library.connect(&Address::parse("localhost:5555")?, Duration::from_secs(2)) {
///     Ok(engine) => engine,
///     Err(_) => library.start_embedded()?,
/// };
/// println!("{:?} {:?}", library.version(), engine.all_gpus()?);
/// # Ok::<(), dcgm_ffi::Error>(())
/// ```
pub struct Library {
    pub(crate) symbols: Symbols,
    /// Never dropped, see the module's text.
    _loaded: ManuallyDrop<Loaded>,
    path: PathBuf,
    version: Option<Version>,
    /// An engine of ours runs inside this process.
    pub(crate) embedded: AtomicBool,
    /// Given back after the shutdown; none in tests, which bring functions of their own.
    _claim: Option<Claim>,
}

/// What the library knows of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldMeta {
    /// The field.
    pub id: u16,
    /// DCGM's short name.
    pub tag: String,
    /// How the value is delivered when it is read well. None: a type we do not know.
    pub kind: Option<FieldKind>,
    /// One value for the whole node.
    pub global: bool,
    /// The lowest level with a value of its own. None: a level we do not know.
    pub entity_level: Option<EntityGroup>,
    /// The NVML field it is read from.
    pub nvml_field: Option<u32>,
}

/// A libdcgm that is loaded and not initialized: a step of its own, since either may hang.
pub struct LoadedLibrary {
    symbols: Symbols,
    loaded: Loaded,
    path: PathBuf,
    claim: Claim,
}

impl LoadedLibrary {
    /// Loads the library; nothing of it is called but its constructors.
    ///
    /// # Errors
    /// [`Error::AlreadyOpen`] while there is another one, [`Error::Missing`], [`Error::Open`] or
    /// [`Error::Symbol`].
    pub fn load(path: Option<&Path>) -> Result<Self, Error> {
        let claim = Claim::take().ok_or(Error::AlreadyOpen)?;
        let (loaded, path) = match path {
            Some(path) => (load(path)?, path.to_path_buf()),
            None => load_by_name()?,
        };
        // SAFETY: nobody but a libdcgm has these names; the library is unloaded only when a name is missing or
        // before anything was called, and then no pointer is left.
        let symbols = unsafe { Symbols::find(&loaded, path.display().to_string()) }?;
        Ok(Self { symbols, loaded, path, claim })
    }

    /// Initializes it.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn initialize(self) -> Result<Library, Error> {
        Library::initialize(self.symbols, self.loaded, self.path, Some(self.claim))
    }
}

impl Library {
    /// Opens and initializes the library.
    ///
    /// # Errors
    /// Those of [`LoadedLibrary::load`] and [`LoadedLibrary::initialize`].
    pub fn open(path: Option<&Path>) -> Result<Self, Error> {
        LoadedLibrary::load(path)?.initialize()
    }

    fn initialize(
        symbols: Symbols,
        loaded: Loaded,
        path: PathBuf,
        claim: Option<Claim>,
    ) -> Result<Self, Error> {
        let loaded = ManuallyDrop::new(loaded);
        // SAFETY: no arguments; may be repeated.
        check("dcgmInit", unsafe { (symbols.init)() })?;
        // SAFETY: no arguments; may be repeated; after dcgmInit the table exists and stays.
        check("DcgmFieldsInit", unsafe { (symbols.fields_init)() })?;
        let version = version_of(&symbols);
        Ok(Self { symbols, _loaded: loaded, path, version, embedded: AtomicBool::new(false), _claim: claim })
    }

    /// A library whose functions are those of a test.
    #[cfg(test)]
    pub(crate) fn of_test(symbols: Symbols) -> Result<Self, Error> {
        Self::initialize(symbols, Loaded::this(), "test".into(), None)
    }

    /// What was opened: the path as given, or the name that the loader found.
    pub fn path(&self) -> String {
        self.path.display().to_string()
    }

    /// The library's version: what it says, else the oldest one with the functions it has.
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// The version to choose structures by.
    pub(crate) fn level(&self) -> Version {
        self.version.unwrap_or_else(|| by_functions(&self.symbols))
    }

    /// What this library knows of a field; None: it does not know it. An older engine may still not.
    pub fn field(&self, id: u16) -> Option<FieldMeta> {
        // SAFETY: any number may be asked; the answer is null or memory of the library that stays.
        let meta = unsafe { (self.symbols.field_by_id)(id).as_ref() }?;
        Some(FieldMeta {
            id: meta.field_id,
            tag: abi::text(&meta.tag),
            kind: FieldKind::from_code(meta.field_type.into()),
            global: meta.scope == 0,
            entity_level: EntityGroup::from_raw(meta.entity_level),
            nvml_field: u32::try_from(meta.nvml_field_id).ok().filter(|id| *id != 0),
        })
    }

    /// Ends the library's work: closes all connections and waits for calls in flight, which may take a minute
    /// when the engine hangs. The same as dropping it.
    pub fn shutdown(self) {}
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: no arguments. Engines borrow the library, so none is left that could use a handle after
        // this.
        unsafe { (self.symbols.shutdown)() };
    }
}

/// An answer of the library as a result.
pub(crate) fn check(function: &'static str, code: i32) -> Result<(), Error> {
    match ReturnCode(code) {
        ReturnCode::OK => Ok(()),
        code @ ReturnCode::FUNCTION_NOT_FOUND => Err(Error::EngineTooOld { function, code }),
        code => Err(Error::Call { function, code }),
    }
}

fn load(path: &Path) -> Result<Loaded, Error> {
    // SAFETY: opening runs the file's constructors; that this file is trusted is the user's word, as with any
    // program that is started. The flags are those of NVIDIA's own client, so that the engine's modules find
    // the library.
    unsafe { Loaded::open(Some(path), RTLD_LAZY | RTLD_GLOBAL) }.map_err(|error| unloaded(path, &error))
}

/// Why a library was not loaded. One that lacks another library is not missing itself.
pub(crate) fn unloaded(path: &Path, error: &libloading::Error) -> Error {
    let (library, reason) = (path.display().to_string(), words(error));
    let own = reason.strip_prefix(&library).is_some_and(|rest| rest.starts_with(':'));
    if own && reason.contains("No such file") {
        Error::Missing { library, reason }
    } else {
        Error::Open { library, reason }
    }
}

/// The loader's own words, which stand behind the error.
fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn load_by_name() -> Result<(Loaded, PathBuf), Error> {
    let (mut reasons, mut missing) = (Vec::new(), true);
    for name in NAMES {
        match load(Path::new(name)) {
            Ok(loaded) => return Ok((loaded, name.into())),
            Err(Error::Missing { reason, .. }) => reasons.push(reason),
            Err(Error::Open { reason, .. }) => {
                missing = false;
                reasons.push(reason);
            }
            Err(other) => return Err(other),
        }
    }
    let (library, reason) = (NAMES.join(" and "), reasons.join("; "));
    Err(if missing { Error::Missing { library, reason } } else { Error::Open { library, reason } })
}

fn version_of(symbols: &Symbols) -> Option<Version> {
    let mut info = abi::stamped::<VersionInfo>();
    // SAFETY: the structure is ours for the time of the call and carries its version.
    let code = unsafe { (symbols.version_info)(&raw mut *info) };
    (code == 0).then(|| Version::of_build(&abi::text(&info.build)))?
}

/// The oldest version that has the functions which this one has.
fn by_functions(symbols: &Symbols) -> Version {
    let (major, minor) = if symbols.connect_uri().is_ok() {
        (4, 5)
    } else if symbols.p2p_links().is_ok() {
        (4, 3)
    } else if symbols.policy_register().is_ok() {
        (4, 0)
    } else if symbols.cpus_v1().is_ok() {
        (3, 3)
    } else {
        (3, 1)
    };
    Version::new(major, minor, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These tests are of one process, which may have one library.
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

    fn refused(path: &Path) -> Error {
        let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Library::open(Some(path)).err().unwrap()
    }

    #[test]
    fn a_second_one_is_refused_and_a_failed_one_does_not_stand_in_the_way() {
        let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let nowhere = Path::new("/nowhere/libdcgm.so.4");
        let claim = Claim::take().unwrap();
        assert_eq!(Library::open(Some(nowhere)).err(), Some(Error::AlreadyOpen));
        drop(claim);
        for _ in 0..2 {
            assert!(matches!(Library::open(Some(nowhere)).err(), Some(Error::Missing { .. })));
        }
    }

    #[test]
    fn a_missing_library_is_named_with_a_remedy() {
        let error = refused(Path::new("/nowhere/libdcgm.so.4"));
        assert!(
            matches!(&error, Error::Missing { library, .. } if library == "/nowhere/libdcgm.so.4"),
            "{error}"
        );
        assert!(error.to_string().starts_with("/nowhere/libdcgm.so.4 is not found: "), "{error}");
        assert!(error.to_string().contains("No such file"), "{error}");
        assert!(error.remedy().contains("datacenter-gpu-manager"), "{}", error.remedy());
        assert_eq!(error.code(), None);
    }

    #[test]
    fn a_file_that_is_no_library_is_refused() {
        let error = refused(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")));
        assert!(
            matches!(&error, Error::Open { reason, .. } if reason.contains("invalid ELF header")),
            "{error}"
        );
    }

    #[test]
    fn a_library_that_is_not_dcgm_lacks_a_function() {
        let error = refused(Path::new("libc.so.6"));
        let want = Error::Symbol { library: "libc.so.6".into(), name: "dcgmInit" };
        assert_eq!(error, want);
        assert_eq!(error.to_string(), "libc.so.6 has no function dcgmInit");
    }

    #[test]
    fn without_a_path_both_names_are_tried() {
        let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Where a libdcgm is installed this opens it, which is what it is for.
        match Library::open(None) {
            Ok(library) => assert!(library.path().starts_with("libdcgm.so.")),
            Err(error) => assert!(
                error.to_string().starts_with("libdcgm.so.4 and libdcgm.so.3 are not found: "),
                "{error}"
            ),
        }
    }
}
