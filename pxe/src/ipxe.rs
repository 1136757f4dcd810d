//! iPXE scripts (<https://ipxe.org/scripting>).

use ironwright_proto::{boot_params::MAX_COMMAND_LINE, ids::Digest};

/// How often a script fetches again before it reboots the machine.
const TRIES: u32 = 20;
/// Seconds between tries. A site that restarts is back within the first few.
const PAUSE_S: u32 = 3;

/// Why a kernel command line cannot travel in a script.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// iPXE, or the kernel, would read it differently.
    #[error(
        "`{0}` cannot be on the kernel command line: only printable ASCII without `$`, and no `||` or `&&`"
    )]
    Word(String),
    /// The kernel would cut it.
    #[error("the kernel command line has {0} bytes; the kernel takes at most {MAX_COMMAND_LINE}")]
    TooLong(usize),
}

/// What a machine loads.
#[derive(Debug, Clone, Copy)]
pub struct RamdiskBoot<'a> {
    /// Base URL of boot HTTP, without a trailing slash.
    pub base_url: &'a str,
    /// Kernel.
    pub kernel: Digest,
    /// Initial ramdisk.
    pub ramdisk: Digest,
    /// Kernel command line.
    pub cmdline: &'a str,
}

/// Checks words that will be part of a command line.
pub fn check_cmdline(cmdline: &str) -> Result<(), ScriptError> {
    let bad = |word: &&str| {
        !word.bytes().all(|b| b.is_ascii_graphic() && b != b'$') || matches!(*word, "||" | "&&")
    };
    match cmdline.split(' ').find(bad) {
        Some(word) => Err(ScriptError::Word(word.chars().take(80).collect())),
        None if cmdline.len() > MAX_COMMAND_LINE => Err(ScriptError::TooLong(cmdline.len())),
        None => Ok(()),
    }
}

/// A script that loads kernel and ramdisk by digest. It tries again for a minute, so that a restart of the
/// site in the middle heals by itself, and then reboots, which brings the machine back to DHCP.
///
/// `initrd=` names the ramdisk to the kernel's EFI stub, which asks iPXE for a file of that name.
pub fn ramdisk(boot: &RamdiskBoot<'_>) -> Result<String, ScriptError> {
    let RamdiskBoot { base_url, kernel, ramdisk, cmdline } = *boot;
    let cmdline = format!("initrd=ramdisk {cmdline}");
    let cmdline = cmdline.trim_end();
    check_cmdline(cmdline)?;
    let (kernel, ramdisk) = (kernel.hex(), ramdisk.hex());
    Ok(format!(
        "#!ipxe\n\
         set tries:int32 0\n\
         :load\n\
         imgfree\n\
         kernel --name kernel {base_url}/blobs/sha256/{kernel} {cmdline} || goto again\n\
         initrd --name ramdisk {base_url}/blobs/sha256/{ramdisk} || goto again\n\
         boot || goto again\n\
         :again\n\
         inc tries\n\
         iseq ${{tries}} {TRIES} && goto give_up ||\n\
         echo Ironwright: loading failed, trying again in {PAUSE_S} s\n\
         sleep {PAUSE_S}\n\
         goto load\n\
         :give_up\n\
         echo Ironwright: cannot load kernel and ramdisk from {base_url}, rebooting\n\
         sleep {PAUSE_S}\n\
         reboot\n"
    ))
}

/// A script that leaves the machine to its own disk. BIOS boots the first disk from here, because many ROMs
/// do not go on to the next device; UEFI goes on when its boot option ends with an error, and shows its
/// menu when it ends well (UEFI 2.10 section 3.1.1), hence `exit 1`.
pub fn local() -> String {
    "#!ipxe\n\
     iseq ${platform} pcbios && sanboot --no-describe --drive 0x80 ||\n\
     exit 1\n"
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(cmdline: &str) -> Result<String, ScriptError> {
        ramdisk(&RamdiskBoot {
            base_url: "http://10.0.0.2:8080",
            kernel: Digest([0x11; 32]),
            ramdisk: Digest([0x22; 32]),
            cmdline,
        })
    }

    #[test]
    fn kernel_names_its_ramdisk_and_failures_are_tried_again() {
        let script = boot("console=ttyS0 iw.mac=52:54:00:12:34:56").unwrap();
        let lines: Vec<&str> = script.lines().collect();
        assert_eq!(lines[0], "#!ipxe");
        let (k, r) = ("11".repeat(32), "22".repeat(32));
        let kernel = format!(
            "kernel --name kernel http://10.0.0.2:8080/blobs/sha256/{k} initrd=ramdisk console=ttyS0 \
             iw.mac=52:54:00:12:34:56 || goto again"
        );
        let initrd = format!("initrd --name ramdisk http://10.0.0.2:8080/blobs/sha256/{r} || goto again");
        assert!(lines.contains(&kernel.as_str()) && lines.contains(&initrd.as_str()), "{script}");
        assert_eq!(lines.last(), Some(&"reboot"));
        for label in ["load", "again", "give_up"] {
            assert!(lines.contains(&format!(":{label}").as_str()));
        }
    }

    #[test]
    fn words_that_ipxe_would_run_are_refused() {
        for bad in ["a\nreboot", "a || shell", "a && shell", "a=${net0/mac}", "a\tb", "a=é", "a\0"] {
            assert!(matches!(boot(bad), Err(ScriptError::Word(_))), "{bad:?}");
        }
        assert!(boot("a||b rd.x=#1 quiet").is_ok(), "operators count only as words of their own");
        assert!(matches!(boot(&"x".repeat(2048)), Err(ScriptError::TooLong(_))));
    }
}
