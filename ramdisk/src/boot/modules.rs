//! Drivers: kernel modules for the devices that are there, until no new device appears.
//!
//! ```text
//!  look at buses ──► new aliases ──► their modules, dependencies first ──► load each once ─┐
//!       ▲                                                                                  │
//!       └───────────── a driver may bring a bus with new devices ──────────────────────────┘
//! ```

use std::{
    collections::{BTreeSet, HashSet},
    fs::File,
    io,
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    kmod::{ModuleInitFlags, finit_module},
};

use super::devices;
use crate::console::say;

/// Where buses list their devices.
pub const SYS_BUS: &str = "/sys/bus";
/// Rounds until we stop looking for devices behind devices; four are usual.
const MAX_ROUNDS: usize = 16;

/// Finds the files of the modules for an alias, in the order in which they are to be loaded.
pub type Resolve = Box<dyn Fn(&str) -> Vec<PathBuf> + Send>;

/// The drivers of this machine.
pub struct Drivers {
    buses: PathBuf,
    resolve: Resolve,
    load: fn(&Path) -> io::Result<()>,
    seen: BTreeSet<String>,
    tried: HashSet<PathBuf>,
    loaded: usize,
}

impl Drivers {
    /// Drivers for the devices under `buses` by the modules that `resolve` knows, loaded by `load`.
    pub fn new(buses: PathBuf, resolve: Resolve, load: fn(&Path) -> io::Result<()>) -> Self {
        Self { buses, resolve, load, seen: BTreeSet::new(), tried: HashSet::new(), loaded: 0 }
    }

    /// Loads what is missing. Cheap where nothing is new, so it may be called whenever a device is awaited.
    pub fn settle(&mut self) {
        for _ in 0..MAX_ROUNDS {
            if !self.round() {
                return;
            }
        }
        say(
            "drivers",
            format_args!("devices keep appearing after {MAX_ROUNDS} rounds; going on without more"),
        );
    }

    /// How many modules were loaded.
    pub fn loaded(&self) -> usize {
        self.loaded
    }

    /// One look at the buses; whether a module was loaded.
    fn round(&mut self) -> bool {
        let before = self.loaded;
        for alias in devices::aliases(&self.buses) {
            if self.seen.contains(&alias) {
                continue;
            }
            for file in (self.resolve)(&alias) {
                if self.tried.insert(file.clone()) {
                    self.load(&file);
                }
            }
            self.seen.insert(alias);
        }
        self.loaded > before
    }

    fn load(&mut self, file: &Path) {
        match (self.load)(file) {
            Ok(()) => self.loaded += 1,
            // One device less; whether it was needed shows when it is asked for.
            Err(error) => say("drivers", format_args!("loading {}: {error}", file.display())),
        }
    }
}

/// Gives one module to the kernel. One that is there already is no error.
pub fn load_into_kernel(file: &Path) -> io::Result<()> {
    match finit_module(File::open(file)?, c"", ModuleInitFlags::empty()) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn add_device(buses: &Path, bus: &str, alias: &str) {
        let folder = buses.join(bus).join("devices/0");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("modalias"), alias).unwrap();
    }

    #[test]
    fn a_bus_behind_a_driver_is_found_and_each_module_is_loaded_once() {
        /// "Loading" appends to a log, and a bus driver makes its device appear.
        fn load(file: &Path) -> io::Result<()> {
            let name = file.file_name().unwrap().to_str().unwrap();
            let root = file.parent().unwrap();
            let log = root.join("log");
            let text = fs::read_to_string(&log).unwrap_or_default();
            fs::write(&log, format!("{text}{name} ")).unwrap();
            match name {
                "virtio_pci.ko" => add_device(&root.join("bus"), "virtio", "virtio:net\n"),
                "broken.ko" => return Err(io::Error::other("no such symbol")),
                _ => {}
            }
            Ok(())
        }
        let root = tempfile::tempdir().unwrap();
        let buses = root.path().join("bus");
        add_device(&buses, "pci", "pci:virtio\n");
        add_device(&buses, "acpi", "acpi:odd\n");
        let folder = root.path().to_owned();
        let resolve = move |alias: &str| {
            let names: &[&str] = match alias {
                "pci:virtio" => &["virtio.ko", "virtio_pci.ko"],
                "virtio:net" => &["virtio.ko", "failover.ko", "virtio_net.ko"],
                "acpi:odd" => &["broken.ko"],
                _ => &[],
            };
            names.iter().map(|name| folder.join(name)).collect()
        };
        let mut drivers = Drivers::new(buses, Box::new(resolve), load);
        drivers.settle();
        drivers.settle();
        let log = fs::read_to_string(root.path().join("log")).unwrap();
        assert_eq!(log, "broken.ko virtio.ko virtio_pci.ko failover.ko virtio_net.ko ");
        assert_eq!(drivers.loaded(), 4);
    }
}
