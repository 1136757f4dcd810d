//! `modules.dep` and `modules.alias` (modules.dep(5)): written into the initramfs, read by PID 1.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use super::{Closure, Module, glob, normal};

/// Longest index file that is read, in bytes; a full Debian kernel's is about 1.5 MB.
const MAX_INDEX: u64 = 32 << 20;

/// Which modules a device wants and what they need.
#[derive(Debug, Clone, Default)]
pub struct Index {
    root: PathBuf,
    /// By name: the module's own path and those of its needs, in load order.
    load_order: HashMap<String, Vec<String>>,
    /// Patterns with the modules that they stand for, by what stands before the first `:` of the pattern.
    aliases: BTreeMap<String, Vec<(String, String)>>,
}

impl Index {
    /// Reads `modules.dep` and `modules.alias` in a folder like `/lib/modules/6.1.0-13-amd64`.
    pub fn load(root: &Path) -> io::Result<Self> {
        let dep = read(&root.join("modules.dep"))?;
        let alias = read(&root.join("modules.alias"))?;
        Ok(Self::parse(root, &dep, &alias))
    }

    /// From the texts of the two files. Lines that make no sense are passed over.
    pub fn parse(root: &Path, dep: &str, alias: &str) -> Self {
        let mut index = Self { root: root.to_owned(), ..Self::default() };
        for line in dep.lines() {
            let Some((path, needs)) = line.split_once(':') else { continue };
            // What is listed last is to be loaded first.
            let mut order: Vec<String> = needs.split_whitespace().rev().map(str::to_owned).collect();
            order.push(path.to_owned());
            if let Some((name, _)) = super::name_of(path) {
                index.load_order.insert(name, order);
            }
        }
        for line in alias.lines() {
            let mut words = line.split_whitespace();
            if let (Some("alias"), Some(pattern), Some(name)) = (words.next(), words.next(), words.next()) {
                let entry = (pattern.to_owned(), normal(name));
                index.aliases.entry(bus(pattern).to_owned()).or_default().push(entry);
            }
        }
        index
    }

    /// The files to load for a device's modalias, a module's name, or another alias such as `fs-efivarfs`: each
    /// after those that it needs, none twice. Empty where nothing is known.
    pub fn resolve(&self, wanted: &str) -> Vec<PathBuf> {
        let direct = self.load_order.get(&normal(wanted)).into_iter();
        // A pattern like `acpi*:…` has no fixed bus; all such are looked at.
        let same_bus = self.aliases.iter().filter(|(bus, _)| glob::matches(bus, self::bus(wanted)));
        let names = same_bus.flat_map(|(_, list)| list).filter(|(pattern, _)| glob::matches(pattern, wanted));
        let matched = names.filter_map(|(_, name)| self.load_order.get(name));
        let mut seen = HashSet::new();
        let files = direct.chain(matched).flatten().filter(|path| seen.insert(path.as_str()));
        files.map(|path| self.root.join(path)).collect()
    }

    /// Number of modules.
    pub fn len(&self) -> usize {
        self.load_order.len()
    }

    /// Whether there is no module.
    pub fn is_empty(&self) -> bool {
        self.load_order.is_empty()
    }
}

fn bus(alias: &str) -> &str {
    alias.split(':').next().unwrap_or(alias)
}

fn read(path: &Path) -> io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    fs::File::open(path)?.take(MAX_INDEX).read_to_string(&mut text)?;
    Ok(text)
}

impl Closure {
    /// The text of `modules.dep` for these modules alone.
    pub fn modules_dep(&self) -> String {
        let by_name: HashMap<&str, &Module> = self.modules.iter().map(|m| (m.name.as_str(), m)).collect();
        let mut text = String::new();
        for module in &self.modules {
            let mut order = Vec::new();
            needs_of(module, &by_name, &mut HashSet::from([module.name.as_str()]), &mut order);
            let needs: String = order.iter().rev().fold(String::new(), |text, path| text + " " + path);
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}:{needs}", module.path);
        }
        text
    }

    /// The text of `modules.alias` for these modules alone.
    pub fn modules_alias(&self) -> String {
        let mut text = String::new();
        for module in &self.modules {
            for alias in &module.aliases {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "alias {alias} {}", module.name);
            }
        }
        text
    }
}

/// Appends the paths of all that a module needs, in load order.
fn needs_of<'a>(
    module: &'a Module,
    by_name: &HashMap<&str, &'a Module>,
    seen: &mut HashSet<&'a str>,
    order: &mut Vec<&'a str>,
) {
    for need in module.needs.iter().filter_map(|name| by_name.get(name.as_str()).copied()) {
        if seen.insert(&need.name) {
            needs_of(need, by_name, seen, order);
            order.push(&need.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "\
kernel/drivers/net/virtio_net.ko: kernel/net/core/failover.ko kernel/drivers/virtio/virtio_ring.ko kernel/drivers/virtio/virtio.ko
kernel/drivers/virtio/virtio.ko:
kernel/drivers/virtio/virtio_ring.ko: kernel/drivers/virtio/virtio.ko
kernel/net/core/failover.ko:
kernel/drivers/char/tpm/tpm_crb.ko.xz:
nonsense
";
    const ALIAS: &str = "\
# Aliases extracted from modules themselves.
alias virtio:d00000001v* virtio_net
alias virtio:d00000001v0000* virtio-ring
alias acpi*:MSFT0101:* tpm_crb
alias fs-efivarfs efivarfs
alias
";

    fn resolved(wanted: &str) -> Vec<String> {
        let files = Index::parse(Path::new("/m"), DEP, ALIAS).resolve(wanted);
        files.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_device_gets_its_drivers_with_their_needs_first_and_each_once() {
        let order = resolved("virtio:d00000001v00001AF4");
        assert_eq!(order, ["virtio.ko", "virtio_ring.ko", "failover.ko", "virtio_net.ko"]);
        assert_eq!(resolved("acpi:MSFT0101:"), ["tpm_crb.ko.xz"]);
        assert_eq!(resolved("virtio-ring"), ["virtio.ko", "virtio_ring.ko"], "by name");
        assert!(resolved("pci:v00008086d00001533").is_empty());
        assert!(resolved("fs-efivarfs").is_empty(), "the module is built in or absent");
    }

    #[test]
    fn what_is_written_resolves_in_the_same_order() {
        let module = |name: &str, needs: &[&str]| Module {
            name: name.into(),
            path: format!("kernel/{name}.ko"),
            bytes: Vec::new(),
            needs: needs.iter().map(|&n| n.to_owned()).collect(),
            aliases: vec![format!("pci:{name}*")],
        };
        let modules =
            vec![module("a", &[]), module("b", &["a"]), module("c", &["b"]), module("d", &["c", "a"])];
        let closure = Closure { modules, missing: Vec::new() };
        assert!(closure.modules_dep().ends_with("kernel/d.ko: kernel/c.ko kernel/b.ko kernel/a.ko\n"));
        let index = Index::parse(Path::new(""), &closure.modules_dep(), &closure.modules_alias());
        let order = ["kernel/a.ko", "kernel/b.ko", "kernel/c.ko", "kernel/d.ko"].map(PathBuf::from);
        assert_eq!(index.resolve("pci:d7"), order);
        assert_eq!(index.len(), 4);
    }
}
