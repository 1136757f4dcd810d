//! The kinds of commands: who runs them, in which lane, and what a crash means for them.

/// Commands of one lane share its credits; lanes never wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// Short orders: 4 at a time.
    Control,
    /// Work that changes the machine: 2 at a time.
    Provision,
    /// Long copies: 1 at a time.
    Bulk,
}

impl Lane {
    /// All lanes.
    pub const ALL: [Self; 3] = [Self::Control, Self::Provision, Self::Bulk];

    /// How many commands of the lane an agent runs at a time.
    pub const fn credits(self) -> usize {
        match self {
            Self::Control => 4,
            Self::Provision => 2,
            Self::Bulk => 1,
        }
    }
}

/// The role of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Serves network boot at a place.
    Site,
    /// PID 1 of our initramfs.
    Ramdisk,
    /// A service of an operating system.
    Node,
}

impl Role {
    /// The word used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Site => "site",
            Self::Ramdisk => "ramdisk",
            Self::Node => "node",
        }
    }

    /// Reads the word used on the wire; `None` for a role of a newer peer.
    pub fn from_wire(text: &str) -> Option<Self> {
        [Self::Site, Self::Ramdisk, Self::Node].into_iter().find(|role| role.as_str() == text)
    }
}

/// What is fixed about a kind of command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// The word on the wire.
    pub name: &'static str,
    /// The lane it runs in.
    pub lane: Lane,
    /// May be run again after a crash, with the same effect as running it once.
    pub retry_safe: bool,
    /// Ends the agent that runs it: found running after a change of boot id, it has succeeded.
    pub self_terminating: bool,
    /// The roles that run it.
    pub roles: &'static [Role],
}

/// Args [`crate::wire::BootPrepareArgs`], result [`crate::wire::BootPrepareResult`].
pub const BOOT_PREPARE: &str = "boot.prepare";
/// Args [`crate::wire::BootLocalArgs`], no result.
pub const BOOT_LOCAL: &str = "boot.local";
/// No args, result [`crate::wire::Inventory`].
pub const INVENTORY_COLLECT: &str = "inventory.collect";
/// Args [`crate::wire::DiskEraseArgs`], result [`crate::wire::DiskEraseResult`].
pub const DISK_ERASE: &str = "disk.erase";
/// Args [`crate::wire::ImageDeployArgs`], result [`crate::wire::ImageDeployResult`].
pub const IMAGE_DEPLOY: &str = "image.deploy";
/// Args [`crate::wire::BootFinishArgs`], no result.
pub const BOOT_FINISH: &str = "boot.finish";
/// No args, no result; outcome `rebooted`.
pub const NODE_REBOOT: &str = "node.reboot";

const fn kind(name: &'static str, lane: Lane, self_terminating: bool, roles: &'static [Role]) -> Kind {
    Kind { name, lane, retry_safe: !self_terminating, self_terminating, roles }
}

/// Every kind this version knows.
pub const ALL: &[Kind] = &[
    kind(BOOT_PREPARE, Lane::Bulk, false, &[Role::Site]),
    kind(BOOT_LOCAL, Lane::Control, false, &[Role::Site]),
    kind(INVENTORY_COLLECT, Lane::Control, false, &[Role::Ramdisk, Role::Node]),
    kind(DISK_ERASE, Lane::Provision, false, &[Role::Ramdisk]),
    kind(IMAGE_DEPLOY, Lane::Bulk, false, &[Role::Ramdisk]),
    kind(BOOT_FINISH, Lane::Provision, false, &[Role::Ramdisk]),
    kind(NODE_REBOOT, Lane::Control, true, &[Role::Ramdisk, Role::Node]),
];

/// Looks a kind up by its word on the wire.
pub fn find(name: &str) -> Option<&'static Kind> {
    ALL.iter().find(|kind| kind.name == name)
}
