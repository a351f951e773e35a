//! Another build of the driver's double in place of the usual one.
//!
//! In: how a module of that build is loaded. Out: the driver, until dropped; then the usual one is back.
//! What can go wrong: somebody holds the driver; it is waited for, with a deadline.

use std::io;

use warpgauge_tests::harness::deadline::wait_for;
use warpgauge_tests::harness::driver::Module;

/// The usual driver is back when this is dropped.
pub(super) struct Variant;

impl Variant {
    /// Loads both modules, each as `load` does it.
    pub(super) fn load(load: impl Fn(Module) -> io::Result<()>) -> Self {
        unload();
        let loaded = Self;
        load(Module::Nvidia).unwrap();
        load(Module::Uvm).unwrap();
        loaded
    }
}

impl Drop for Variant {
    fn drop(&mut self) {
        unload();
        Module::Nvidia.load().unwrap();
        Module::Uvm.load().unwrap();
    }
}

/// A caller that was killed may still be on its way out.
fn unload() {
    for module in [Module::Uvm, Module::Nvidia] {
        wait_for("the driver to be free", 20, || {
            (!module.is_loaded() || module.unload().is_ok()).then_some(())
        });
    }
}
