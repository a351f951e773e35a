//! Getting an engine: by connecting, or by starting one inside this process.
//!
//! In: an address and a time, or nothing. Out: an [`Engine`] that has answered a request. What can go wrong:
//! the library reports success for a connection on which nobody answers, and hands out a handle with a
//! failure; so the handle is used only after a request on it succeeded, and given back otherwise.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Engine, check};
use crate::abi::connection::{ConnectV2, ConnectV3, EngineHealth, StartV1, StartV2, StartV3, VersionInfo};
use crate::abi::{self, Handle, Versioned};
use crate::address::Address;
use crate::error::Error;
use crate::library::Library;
use crate::return_code::ReturnCode;
use crate::version::Version;

/// The handle of the engine inside this process, always. Source: `dcgm_structs.h`, `DCGM_EMBEDDED_HANDLE`.
const EMBEDDED: Handle = 0x7fff_ffff;
/// The engine updates its values by itself. Source: `dcgmOperationMode_t`.
const AUTO: u32 = 1;
/// The severity is taken from the environment.
const SEVERITY_FROM_ENVIRONMENT: i32 = -1;

impl Library {
    /// Connects to a host engine and sees that it answers.
    ///
    /// `timeout` (rounded to milliseconds, at least one) is how long a refused connection is tried again. It
    /// does not bound the call: an engine that takes the connection and does not answer blocks it for two
    /// minutes and more.
    ///
    /// # Errors
    /// [`Error::Call`] when nobody listens, [`Error::DeadConnection`] when nobody answers, [`Error::NoUri`]
    /// when this library is too old for the address.
    pub fn connect(&self, address: &Address, timeout: Duration) -> Result<Engine<'_>, Error> {
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).max(1); // 0 means 5 s
        let mut handle: Handle = 0;
        let (function, code) = match address {
            Address::Uri(uri) => {
                let connect =
                    self.symbols.connect_uri().map_err(|_| Error::NoUri { address: uri.clone() })?;
                let text = c_string("dcgmConnect_v3", uri.as_bytes())?;
                let mut how = abi::stamped::<ConnectV3>();
                how.timeout_ms = timeout_ms;
                // SAFETY: text, structure and handle are ours for the time of the call.
                ("dcgmConnect_v3", unsafe { connect(text.as_ptr(), &raw mut *how, &raw mut handle) })
            }
            Address::Host(_) | Address::Unix(_) => {
                let text = match address {
                    Address::Unix(path) => c_string("dcgmConnect_v2", path.as_os_str().as_bytes())?,
                    Address::Host(text) | Address::Uri(text) => c_string("dcgmConnect_v2", text.as_bytes())?,
                };
                let mut how = abi::stamped::<ConnectV2>();
                how.timeout_ms = timeout_ms;
                how.address_is_unix_socket = matches!(address, Address::Unix(_)).into();
                // SAFETY: as above.
                let code = unsafe { (self.symbols.connect)(text.as_ptr(), &raw mut *how, &raw mut handle) };
                ("dcgmConnect_v2", code)
            }
        };
        if let Err(error) = check(function, code) {
            self.give_back(handle);
            return Err(error);
        }
        match self.ask_version(handle) {
            Ok(version) => Ok(Engine::new(self, handle, false, version)),
            Err(code) => {
                self.give_back(handle);
                Err(Error::DeadConnection { address: address.to_string(), code })
            }
        }
    }

    /// Starts an engine inside this process: 11 threads and more, half a second; without a driver it starts
    /// too and has no GPUs. Its faults are this process's faults. The process must not fork after this.
    ///
    /// # Errors
    /// [`Error::AlreadyEmbedded`] while another [`Engine`] of this library is such a one.
    pub fn start_embedded(&self) -> Result<Engine<'_>, Error> {
        let start = self.symbols.start_embedded()?;
        self.symbols.stop_embedded()?;
        if self.embedded.swap(true, Ordering::AcqRel) {
            return Err(Error::AlreadyEmbedded);
        }
        let started = self.start(start).and_then(|handle| {
            let version = self
                .ask_version(handle)
                .map_err(|code| Error::DeadConnection { address: "this process".into(), code })?;
            Ok(Engine::new(self, handle, true, version))
        });
        if started.is_err() {
            self.embedded.store(false, Ordering::Release);
        }
        started
    }

    /// Starts by the newest structure that the library knows; the oldest one is known to all.
    fn start(&self, start: unsafe extern "C" fn(*mut std::ffi::c_void) -> i32) -> Result<Handle, Error> {
        let new =
            if self.level().at_least(4, 3) { start_by::<StartV3>(start) } else { start_by::<StartV2>(start) };
        match new {
            Err(error) if error.code() == Some(ReturnCode::VER_MISMATCH) => start_by::<StartV1>(start),
            other => other,
        }
    }

    /// Sees that somebody answers. The version may be missing in the answer.
    fn ask_version(&self, handle: Handle) -> Result<Option<Version>, ReturnCode> {
        if handle == 0 {
            return Err(ReturnCode::CONNECTION_NOT_VALID);
        }
        let mut info = abi::stamped::<VersionInfo>();
        // SAFETY: the structure is ours for the time of the call and carries its version; a bad handle is an
        // error code.
        match ReturnCode(unsafe { (self.symbols.engine_version)(handle, &raw mut *info) }) {
            ReturnCode::OK => Ok(Version::of_build(&abi::text(&info.build))),
            code => Err(code),
        }
    }

    /// Gives back the handle of a connection that is none: a failed connect writes one too.
    fn give_back(&self, handle: Handle) {
        if handle != 0 {
            // SAFETY: any number may be given back, a stale one too.
            unsafe { (self.symbols.disconnect)(handle) };
        }
    }
}

impl Engine<'_> {
    /// Whether the engine finds itself healthy. An engine that hangs does not answer.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn is_healthy(&self) -> Result<bool, Error> {
        let ask = self.library.symbols.is_healthy()?;
        let mut health = abi::stamped::<EngineHealth>();
        // SAFETY: the structure is ours for the time of the call and carries its version.
        check("dcgmHostengineIsHealthy", unsafe { ask(self.handle, &raw mut *health) })?;
        Ok(health.overall == 0)
    }
}

/// The three structures by which an engine can be started.
trait Start: Versioned {
    fn fill(&mut self);
    fn handle(&self) -> Handle;
}

macro_rules! start {
    ($($name:ident)*) => { $(
        impl Start for $name {
            fn fill(&mut self) {
                (self.op_mode, self.severity) = (AUTO, SEVERITY_FROM_ENVIRONMENT);
            }

            fn handle(&self) -> Handle {
                self.handle
            }
        }
    )* };
}
start! { StartV1 StartV2 StartV3 }

fn start_by<S: Start>(start: unsafe extern "C" fn(*mut std::ffi::c_void) -> i32) -> Result<Handle, Error> {
    let mut how = abi::stamped::<S>();
    how.fill();
    // SAFETY: the structure is ours for the time of the call and carries its version and size; its texts are
    // null, which the library takes for "none".
    check("dcgmStartEmbedded_v2", unsafe { start((&raw mut *how).cast()) })?;
    // With an engine already there the call succeeds and leaves the handle as it was. None of ours runs, so
    // it was left by a stop that failed: it is taken over, under the handle that such an engine always has.
    Ok(if how.handle() == 0 { EMBEDDED } else { how.handle() })
}

/// Text for C.
pub(super) fn c_string(function: &'static str, text: &[u8]) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::Argument { function, what: "the text contains a zero byte".into() })
}
